// The device of Transom, as rdma-unit-test may expect it.

#pragma once

#include <string>

#include "infiniband/verbs.h"
#include "internal/introspection_registrar.h"
#include "public/introspection.h"

namespace rdma_unit_test {

class IntrospectionTransom : public NicIntrospection {
 public:
  IntrospectionTransom(const std::string& name, const ibv_device_attr& attr)
      : NicIntrospection(name, attr) {}

  static void Register() {
    IntrospectionRegistrar::GetInstance().Register(
        "transom", [](const std::string& name, const ibv_device_attr& attr) {
          return new IntrospectionTransom(name, attr);
        });
  }

  bool SupportsReRegMr() const override { return true; }
  bool FullCqIdlesQp() const override { return false; }
  bool NoNakOnSendInvalidateErrors() const override { return false; }
  bool SilentlyDropSendWrWhenResetInitRtr() const override { return false; }
  // Fewer repetitions: everything is done by processors.
  bool IsSlowNic() const override { return true; }
};

}  // namespace rdma_unit_test
