//! Constants that the library was built with, for programs (and our tests) that compare it with the
//! headers.

use std::ffi::{CString, c_char};
use std::mem::{offset_of, size_of};
use std::sync::OnceLock;

use crate::abi::*;
use crate::com::{Class, OutPtr, guard, live_objects};
use crate::explain::Explain;
use crate::names::Names;
use crate::{guid, limits, status, v1, v2};

type Fact = (String, u64);

/// `GetResults` for `get_results`.
fn camel(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    name.split('_').map(word).collect()
}

fn slots<T: Class>(facts: &mut Vec<Fact>, interface: &str) {
    for (index, name) in T::SLOTS.iter().enumerate() {
        facts.push((format!("slot {interface}.{}", camel(name)), index as u64 + 3));
    }
}

macro_rules! layout {
    ($facts:expr, $name:literal = $type:ty { $($member:literal = $field:ident),* $(,)? }) => {
        $facts.push((format!("sizeof {}", $name), size_of::<$type>() as u64));
        $($facts.push((format!("offsetof {}.{}", $name, $member), offset_of!($type, $field) as u64));)*
    };
}

fn collect() -> Vec<Fact> {
    let mut facts = Vec::new();
    layout!(facts, "ND2_ADAPTER_INFO" = Nd2AdapterInfo {
        "InfoVersion" = info_version, "VendorId" = vendor_id, "DeviceId" = device_id,
        "AdapterId" = adapter_id, "MaxRegistrationSize" = max_registration_size,
        "MaxWindowSize" = max_window_size, "MaxInitiatorSge" = max_initiator_sge,
        "MaxReceiveSge" = max_receive_sge, "MaxReadSge" = max_read_sge,
        "MaxTransferLength" = max_transfer_length, "MaxInlineDataSize" = max_inline_data_size,
        "MaxInboundReadLimit" = max_inbound_read_limit,
        "MaxOutboundReadLimit" = max_outbound_read_limit,
        "MaxReceiveQueueDepth" = max_receive_queue_depth,
        "MaxInitiatorQueueDepth" = max_initiator_queue_depth,
        "MaxSharedReceiveQueueDepth" = max_shared_receive_queue_depth,
        "MaxCompletionQueueDepth" = max_completion_queue_depth,
        "InlineRequestThreshold" = inline_request_threshold,
        "LargeRequestThreshold" = large_request_threshold, "MaxCallerData" = max_caller_data,
        "MaxCalleeData" = max_callee_data, "AdapterFlags" = adapter_flags,
    });
    layout!(facts, "ND2_RESULT" = Nd2Result {
        "Status" = status, "BytesTransferred" = bytes_transferred,
        "QueuePairContext" = queue_pair_context, "RequestContext" = request_context,
        "RequestType" = request_type,
    });
    layout!(facts, "ND2_SGE" = Nd2Sge {
        "Buffer" = buffer, "BufferLength" = buffer_length,
        "MemoryRegionToken" = memory_region_token,
    });
    layout!(facts, "ND_ADAPTER_INFO" = NdAdapterInfo {
        "VendorId" = vendor_id, "DeviceId" = device_id, "MaxInboundSge" = max_inbound_sge,
        "MaxInboundRequests" = max_inbound_requests, "MaxInboundLength" = max_inbound_length,
        "MaxOutboundSge" = max_outbound_sge, "MaxOutboundRequests" = max_outbound_requests,
        "MaxOutboundLength" = max_outbound_length, "MaxInlineData" = max_inline_data,
        "MaxInboundReadLimit" = max_inbound_read_limit,
        "MaxOutboundReadLimit" = max_outbound_read_limit, "MaxCqEntries" = max_cq_entries,
        "MaxRegistrationSize" = max_registration_size, "MaxWindowSize" = max_window_size,
        "LargeRequestThreshold" = large_request_threshold, "MaxCallerData" = max_caller_data,
        "MaxCalleeData" = max_callee_data,
    });
    layout!(facts, "ND_RESULT" = NdResult {
        "Status" = status, "BytesTransferred" = bytes_transferred,
    });
    layout!(facts, "ND_SGE" = NdSge { "pAddr" = address, "Length" = length, "hMr" = region });
    layout!(facts, "ND_MW_DESCRIPTOR" = NdMwDescriptor {
        "Base" = base, "Length" = length, "Token" = token,
    });
    slots::<v2::Provider>(&mut facts, "IND2Provider");
    slots::<v2::Adapter>(&mut facts, "IND2Adapter");
    slots::<v2::CompletionQueue>(&mut facts, "IND2CompletionQueue");
    slots::<v2::SharedQueue>(&mut facts, "IND2SharedReceiveQueue");
    slots::<v2::Region>(&mut facts, "IND2MemoryRegion");
    slots::<v2::Window>(&mut facts, "IND2MemoryWindow");
    slots::<v2::QueuePair>(&mut facts, "IND2QueuePair");
    slots::<v2::Connector>(&mut facts, "IND2Connector");
    slots::<v2::Listener>(&mut facts, "IND2Listener");
    slots::<v1::Provider>(&mut facts, "INDProvider");
    slots::<v1::Adapter>(&mut facts, "INDAdapter");
    slots::<v1::CompletionQueue>(&mut facts, "INDCompletionQueue");
    slots::<v1::Endpoint>(&mut facts, "INDEndpoint");
    slots::<v1::Connector>(&mut facts, "INDConnector");
    slots::<v1::Listen>(&mut facts, "INDListen");
    slots::<Explain>(&mut facts, "ITransomExplain");
    slots::<Names>(&mut facts, "ITransomNames");
    for (name, guid) in guid::ALL {
        let [high, low] = guid.words();
        facts.push((format!("guid {name} 1"), high));
        facts.push((format!("guid {name} 2"), low));
    }
    for (name, value) in status::ALL {
        facts.push(((*name).to_owned(), u64::from(*value as u32)));
    }
    facts.push(("limit SGE".to_owned(), u64::from(limits::SGE)));
    facts
}

/// Fact number `index`; 0 when there are no more.
#[unsafe(no_mangle)]
extern "C" fn transom_nd_fact(index: u32, name: OutPtr<*const c_char>, value: OutPtr<u64>) -> i32 {
    static FACTS: OnceLock<Vec<(CString, u64)>> = OnceLock::new();
    guard(|| {
        let facts = FACTS.get_or_init(|| {
            let text = |(name, value)| CString::new::<String>(name).ok().map(|name| (name, value));
            collect().into_iter().filter_map(text).collect()
        });
        match facts.get(index as usize) {
            Some((text, number)) => {
                name.put(text.as_ptr());
                value.put(*number);
                1
            }
            None => 0,
        }
    })
}

/// Live objects of this library.
#[unsafe(no_mangle)]
extern "C" fn transom_nd_live_objects() -> u64 {
    live_objects()
}
