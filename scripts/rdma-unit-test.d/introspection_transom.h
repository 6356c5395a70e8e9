// How rdma-unit-test sees Transom: what the device can do, and the tests that expect something else,
// each with the reason.

#pragma once

#include <string>

#include "absl/container/flat_hash_map.h"
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

 protected:
  const absl::flat_hash_map<TestcaseKey, std::string>& GetDeviations() const override {
    static const std::string posts = "a post in this state is refused with EINVAL, as ibv_post_send's manual says";
    static const std::string overrun =
        "a completion queue that runs over reports IBV_EVENT_CQ_ERR and ends its queue pairs, as the standard says";
    static const std::string own = "the requester's own memory is judged before anything is sent";
    static const std::string token = "the key is judged before the alignment of the address";
    static const std::string flushed = "the responder's receives are flushed: none of them has failed by itself";
    static const std::string handle =
        "a structure with a foreign handle is refused at once, which the test's comment permits";
    static const std::string length = "the receive completes with IBV_WC_LOC_LEN_ERR, and the queue pair lives on";
    static const std::string gone =
        "the owner of the window is in error behind its failed bind and answers nothing: IBV_WC_RETRY_EXC_ERR";
    static const absl::flat_hash_map<TestcaseKey, std::string> deviations{
        {{"QpStateTest", "PostSendReset"}, posts},
        {{"QpStateTest", "PostSendInit"}, posts},
        {{"QpStateTest", "PostSendRtr"}, posts},
        {{"QpStateTest", "PostRecvReset"}, posts},
        {{"CqOverflowTest", "SendCqOverflow"}, overrun},
        {{"CqOverflowTest", "SendSharedCqOverflow"}, overrun},
        {{"CqOverflowTest", "RecvCqOverflow"}, overrun},
        {{"CqOverflowTest", "RecvSharedCqOverflow"}, overrun},
        {{"CqExOverflowTest", "SendCqOverflow"}, overrun},
        {{"CqExOverflowTest", "RecvCqOverflow"}, overrun},
        {{"LoopbackRcQpTest", "CompareSwapInvalidLKey"}, own},
        {{"LoopbackRcQpTest", "CompareSwapInvalidRKeyAndInvalidLKey"}, own},
        {{"LoopbackRcQpTest", "CompareSwapUnalignedInvalidLKey"}, own},
        {{"LoopbackRcQpTest", "FetchAddInvalidLKeyAndInvalidRKey"}, own},
        {{"LoopbackRcQpTest", "FetchAddUnalignedInvalidLKey"}, own},
        {{"LoopbackRcQpTest", "ReadInvalidRKeyAndInvalidLKey"}, own},
        {{"LoopbackRcQpTest", "UnsignaledCompareSwapError"}, own},
        {{"LoopbackRcQpTest", "CompareSwapUnalignedInvalidRKey"}, token},
        {{"LoopbackRcQpTest", "FetchAddUnalignedInvalidRKey"}, token},
        {{"LoopbackRcQpTest", "WriteImmDataInvalidRKey"}, flushed},
        {{"LoopbackUdQpTest", "SendWithTooSmallRecv"}, length},
        {{"MwGeneralTest", "BindInvalidMr"}, handle},
        {{"MwGeneralTest", "BindInvalidMw"}, handle},
        {{"MwType2AdvancedTest", "Rebind"}, gone},
    };
    return deviations;
  }
};

}  // namespace rdma_unit_test
