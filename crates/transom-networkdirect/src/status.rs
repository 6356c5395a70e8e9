//! Status values (ND2 3.5). An HRESULT equal to the NTSTATUS of the same meaning.

/// What a method returns: a success (`ND_SUCCESS` or `ND_PENDING`) or a failure.
pub(crate) type Outcome = Result<i32, i32>;

pub(crate) const ND_SUCCESS: i32 = 0x0000_0000_u32 as i32;
pub(crate) const ND_TIMEOUT: i32 = 0x0000_0102_u32 as i32;
pub(crate) const ND_PENDING: i32 = 0x0000_0103_u32 as i32;
pub(crate) const ND_BUFFER_OVERFLOW: i32 = 0x8000_0005_u32 as i32;
pub(crate) const ND_DEVICE_BUSY: i32 = 0x8000_0011_u32 as i32;
pub(crate) const ND_NO_MORE_ENTRIES: i32 = 0x8000_001A_u32 as i32;
pub(crate) const ND_UNSUCCESSFUL: i32 = 0xC000_0001_u32 as i32;
pub(crate) const ND_ACCESS_VIOLATION: i32 = 0xC000_0005_u32 as i32;
pub(crate) const ND_INVALID_HANDLE: i32 = 0xC000_0008_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER: i32 = 0xC000_000D_u32 as i32;
pub(crate) const ND_INVALID_DEVICE_REQUEST: i32 = 0xC000_0010_u32 as i32;
pub(crate) const ND_NO_MEMORY: i32 = 0xC000_0017_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_MIX: i32 = 0xC000_0030_u32 as i32;
pub(crate) const ND_DATA_OVERRUN: i32 = 0xC000_003C_u32 as i32;
pub(crate) const ND_SHARING_VIOLATION: i32 = 0xC000_0043_u32 as i32;
pub(crate) const ND_INSUFFICIENT_RESOURCES: i32 = 0xC000_009A_u32 as i32;
pub(crate) const ND_DEVICE_NOT_READY: i32 = 0xC000_00A3_u32 as i32;
pub(crate) const ND_IO_TIMEOUT: i32 = 0xC000_00B5_u32 as i32;
pub(crate) const ND_NOT_SUPPORTED: i32 = 0xC000_00BB_u32 as i32;
pub(crate) const ND_INTERNAL_ERROR: i32 = 0xC000_00E5_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_1: i32 = 0xC000_00EF_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_2: i32 = 0xC000_00F0_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_3: i32 = 0xC000_00F1_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_4: i32 = 0xC000_00F2_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_5: i32 = 0xC000_00F3_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_6: i32 = 0xC000_00F4_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_7: i32 = 0xC000_00F5_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_8: i32 = 0xC000_00F6_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_9: i32 = 0xC000_00F7_u32 as i32;
pub(crate) const ND_INVALID_PARAMETER_10: i32 = 0xC000_00F8_u32 as i32;
pub(crate) const ND_CANCELED: i32 = 0xC000_0120_u32 as i32;
pub(crate) const ND_REMOTE_ERROR: i32 = 0xC000_013D_u32 as i32;
pub(crate) const ND_INVALID_ADDRESS: i32 = 0xC000_0141_u32 as i32;
pub(crate) const ND_INVALID_DEVICE_STATE: i32 = 0xC000_0184_u32 as i32;
pub(crate) const ND_INVALID_BUFFER_SIZE: i32 = 0xC000_0206_u32 as i32;
pub(crate) const ND_TOO_MANY_ADDRESSES: i32 = 0xC000_0209_u32 as i32;
pub(crate) const ND_ADDRESS_ALREADY_EXISTS: i32 = 0xC000_020A_u32 as i32;
pub(crate) const ND_CONNECTION_REFUSED: i32 = 0xC000_0236_u32 as i32;
pub(crate) const ND_CONNECTION_INVALID: i32 = 0xC000_023A_u32 as i32;
pub(crate) const ND_CONNECTION_ACTIVE: i32 = 0xC000_023B_u32 as i32;
pub(crate) const ND_NETWORK_UNREACHABLE: i32 = 0xC000_023C_u32 as i32;
pub(crate) const ND_HOST_UNREACHABLE: i32 = 0xC000_023D_u32 as i32;
pub(crate) const ND_CONNECTION_ABORTED: i32 = 0xC000_0241_u32 as i32;
pub(crate) const ND_DEVICE_REMOVED: i32 = 0xC000_02B6_u32 as i32;

// Values without an ND_ name.
pub(crate) const STATUS_DATA_ERROR: i32 = 0xC000_003E_u32 as i32;
pub(crate) const STATUS_BAD_NETWORK_NAME: i32 = 0xC000_00CC_u32 as i32;
pub(crate) const STATUS_CONNECTION_DISCONNECTED: i32 = 0xC000_020C_u32 as i32;
pub(crate) const STATUS_ADDRESS_ALREADY_ASSOCIATED: i32 = 0xC000_0238_u32 as i32;
pub(crate) const STATUS_ADDRESS_NOT_ASSOCIATED: i32 = 0xC000_0239_u32 as i32;
pub(crate) const S_OK: i32 = 0;
pub(crate) const S_FALSE: i32 = 0x0000_0001_u32 as i32;
pub(crate) const E_NOINTERFACE: i32 = 0x8000_4002_u32 as i32;
pub(crate) const E_POINTER: i32 = 0x8000_4003_u32 as i32;
pub(crate) const CLASS_E_NOAGGREGATION: i32 = 0x8004_0110_u32 as i32;
pub(crate) const CLASS_E_CLASSNOTAVAILABLE: i32 = 0x8004_0111_u32 as i32;
