//! The classic pcap file: a header of 24 bytes, then records of 16 bytes and a packet.

/// The packets of a little-endian file of Ethernet frames.
pub(crate) fn packets(bytes: &[u8]) -> Result<Vec<&[u8]>, String> {
    let (header, mut rest) = bytes.split_at_checked(24).ok_or("shorter than a pcap header")?;
    if word(header, 0) != Some(0xA1B2_C3D4) || word(header, 20) != Some(1) {
        return Err("not a little-endian pcap file of Ethernet frames".into());
    }
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let (record, behind) = rest.split_at_checked(16).ok_or("a record is cut short")?;
        let length = word(record, 8).and_then(|length| usize::try_from(length).ok());
        let packet = length.and_then(|length| behind.split_at_checked(length));
        let (packet, behind) = packet.ok_or("a packet is cut short")?;
        if word(record, 8) != word(record, 12) {
            return Err("a packet was not recorded whole".into());
        }
        packets.push(packet);
        rest = behind;
    }
    Ok(packets)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(bytes))
}
