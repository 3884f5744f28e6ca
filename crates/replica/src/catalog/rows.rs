//! The rows of the catalog. Laid out in docs/FORMATS.md, "The origin's tables".

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{Quota, ReplicaId, Time};
use protocol::{Access, Cutter};
use std::fmt;
use volume::whole::VolumeId;

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct VolumeRow {
    #[n(0)]
    pub id: u32,
    #[n(1)]
    pub name: String,
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    pub secret: [u8; 32],
    #[n(3)]
    pub cutter: Cutter,
    #[n(4)]
    pub created: Time,
    /// How long versions are kept after they were replaced, if not as long as by default.
    #[n(5)]
    pub kept_secs: Option<u64>,
    /// What the volume may have, if not as much as there is room for.
    #[n(6)]
    pub quota: Option<Quota>,
}

/// A volume that is to go.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct RemovedRow {
    #[n(0)]
    pub id: u32,
    #[n(1)]
    #[cbor(with = "minicbor::bytes")]
    pub secret: [u8; 32],
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct DeviceRow {
    #[n(0)]
    pub key: ByteVec,
    #[n(1)]
    pub name: String,
    #[n(2)]
    pub access: Access,
    #[n(3)]
    pub since: Time,
}

impl DeviceRow {
    pub fn id(&self) -> DeviceId {
        DeviceId::of(&self.key)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct InvitationRow {
    #[n(0)]
    pub volume: u32,
    #[n(1)]
    pub access: Access,
    #[n(2)]
    pub expires: Option<Time>,
}

/// A client may hold callbacks, for as long as the row is there: the time does not end it, since the
/// clock may be set. An earlier farfs goes by the time.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct LeaseRow {
    #[n(0)]
    pub replica: ReplicaId,
    #[n(1)]
    pub until: Time,
}

pub(crate) fn later(time: Time, secs: u64) -> Time {
    Time { secs: time.secs.saturating_add_unsigned(secs), ..time }
}

/// A device: the hash of its public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub [u8; 32]);

/// Letters of an id that people are shown and must give at least.
const LETTERS_MIN: usize = 4;

impl DeviceId {
    /// The device whose public key this is.
    pub fn of(key: &[u8]) -> DeviceId {
        DeviceId(*blake3::hash(key).as_bytes())
    }

    pub(super) fn begins_with(&self, letters: &str) -> bool {
        letters.len() >= LETTERS_MIN && hex(&self.0).starts_with(&letters.to_ascii_lowercase())
    }

    pub(super) fn key(&self, volume: VolumeId) -> Vec<u8> {
        [&volume.0.to_be_bytes()[..], &self.0].concat()
    }
}

/// Enough of it to tell devices apart.
impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0[..8]))
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is kept of an invitation's token: whoever reads the store cannot use it.
pub(crate) fn token_hash(token: &str) -> [u8; 32] {
    *blake3::hash(token.trim().as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::take::{Clash, Conflict};
    use expect_test::expect;
    use model::{FileId, Name, Seq, Stamp, UserQuota};
    use volume::whole::encode;

    #[test]
    fn the_layout_of_rows_is_pinned() {
        let at = Time { secs: 1, nanos: 2 };
        let name = |text: &[u8]| Name::new(text).unwrap();
        let volume = VolumeRow {
            id: 1,
            name: "v".into(),
            secret: [0x5e; 32],
            cutter: Cutter::Rabin,
            created: at,
            kept_secs: None,
            quota: None,
        };
        let kept = VolumeRow { kept_secs: Some(9), ..volume.clone() };
        let users = Some(vec![UserQuota { uid: 5, bytes: 6 }]);
        let quota = Some(Quota { bytes: Some(7), files: Some(8), users });
        let bounded = VolumeRow { quota, ..volume.clone() };
        let device = DeviceRow {
            key: vec![0xde; 2].into(),
            name: "ada".into(),
            access: Access::ReadOnly,
            since: at,
        };
        let invitation = InvitationRow { volume: 1, access: Access::ReadWrite, expires: Some(at) };
        let conflict = Conflict {
            clash: Clash::Contents,
            update: Stamp::new(ReplicaId(2), 3),
            found: Some(Stamp::new(ReplicaId(1), 4)),
            base: None,
            file: FileId(5),
            directory: FileId::ROOT,
            name: name(b"n"),
            aside: Some((FileId(6), FileId::ROOT, name(b"m"))),
            device: "ada".into(),
            at,
            seq: Some(Seq(7)),
            settings: None,
            claim: None,
            base_file: None,
        };
        let golden = [
            hex(&encode(&volume)),
            hex(&encode(&kept)),
            hex(&encode(&bounded)),
            hex(&encode(&RemovedRow { id: 1, secret: [0x5e; 32] })),
            hex(&encode(&device)),
            hex(&encode(&invitation)),
            hex(&encode(&LeaseRow { replica: ReplicaId(1), until: at })),
            hex(&encode(&conflict)),
        ];
        expect![[r#"
            01d7f476ff8501617658205e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e01820102
            016b71289e8601617658205e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e0182010209
            0146d5b4398701617658205e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e01820102f683070881820506
            019357f274820158205e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e
            01e469ad488442dede6361646101820102
            01cb9849f5830100820102
            01e17a0e4d8201820102
            018acd46a38b00820203820104f60501416e830601416d6361646182010207"#]].assert_eq(&golden.join("\n"));
    }

    #[test]
    fn hashes_of_devices_and_tokens_are_pinned() {
        let device = DeviceId::of(b"key");
        expect![
            "ff8e2bab3b26e0c1 aaeb2885d79de19fe2cae7cfd1e68a13b9aa306dfe28b948b982ffd7228120b1"
        ]
        .assert_eq(&format!("{device} {}", hex(&token_hash(" token\n"))));
        assert!(device.begins_with(&device.to_string()[..4].to_uppercase()));
        assert!(!device.begins_with(&device.to_string()[..3]), "too few letters");
    }
}
