//! Whether the origin's own rows read, and belong to something that there is.

use super::{ALL, DEVICES, INVITATIONS, LEASES, NEXT_VOLUME, REMOVED, VOLUMES};
use super::{DeviceRow, InvitationRow, LeaseRow, RemovedRow, hex};
use crate::take::{
    ASIDE_CONTENTS, ASIDE_NAMES, CONFLICTS, Conflict, LISTED, MERGED, SETTLED, Settled,
};
use crate::upkeep::{TRASH, TrashRow};
use crate::volumes::parse_blob_name;
use crate::wanted::{WANTED, WantedRow};
use minicbor::Decode;
use model::{FileId, Name};
use std::collections::BTreeSet;
use store::Read;
use volume::whole::{VolumeId, decode, describe};

/// Rows that are read at once.
const ROWS_MAX: usize = 1000;

pub(crate) struct RowFault {
    pub place: String,
    pub what: String,
}

/// Every row that is not of a volume's tree.
pub(crate) fn check_rows(read: &dyn Read, volumes: &BTreeSet<VolumeId>) -> Vec<RowFault> {
    let mut rows = Rows { read, faults: Vec::new() };
    let known = |number: u32| volumes.contains(&VolumeId(number));
    rows.each::<u32>(NEXT_VOLUME, |_, _| true);
    rows.each::<RemovedRow>(REMOVED, |_, _| true);
    rows.each::<InvitationRow>(INVITATIONS, |_, row| known(row.volume));
    let of_known =
        |key: &[u8]| key.first_chunk().is_some_and(|number| known(u32::from_be_bytes(*number)));
    rows.each::<DeviceRow>(DEVICES, |key, _| of_known(key));
    rows.each::<LeaseRow>(LEASES, |key, _| of_known(key));
    rows.each::<Conflict>(CONFLICTS, |key, _| of_known(key));
    rows.each::<Settled>(SETTLED, |key, _| of_known(key));
    rows.each::<u64>(LISTED, |key, _| of_known(key));
    rows.each::<FileId>(ASIDE_CONTENTS, |key, _| of_known(key));
    rows.each::<(FileId, Name)>(ASIDE_NAMES, |key, _| of_known(key));
    rows.each::<FileId>(MERGED, |key, _| of_known(key));
    // What is left of a removed volume goes with the next cycle.
    rows.each::<TrashRow>(TRASH, |_, _| true);
    rows.each::<WantedRow>(WANTED, |key, _| of_known(key));
    rows.faults
}

/// What a row of the origin's tables is about, by its key alone. None: nobody can tell.
pub fn describe_row(table: &str, key: &[u8]) -> Option<String> {
    let of_volume = || Some(VolumeId(u32::from_be_bytes(*key.first_chunk()?)));
    match table {
        VOLUMES => Some(format!("the volume {:?}", String::from_utf8_lossy(key))),
        TRASH | WANTED => {
            let (volume, chunk) = parse_blob_name(key)?;
            Some(format!("chunk {chunk}, of {volume}"))
        }
        DEVICES | LEASES | CONFLICTS | SETTLED | LISTED | ASIDE_CONTENTS | ASIDE_NAMES | MERGED => {
            Some(format!("of {}", of_volume()?))
        }
        table if table.starts_with("tree-") => Some(format!("of {}", of_volume()?)),
        table => describe(table, key),
    }
}

struct Rows<'a> {
    read: &'a dyn Read,
    faults: Vec<RowFault>,
}

impl Rows<'_> {
    fn each<T: for<'b> Decode<'b, ()>>(
        &mut self,
        table: &'static str,
        belongs: impl Fn(&[u8], &T) -> bool,
    ) {
        let mut from = ALL.0.to_vec();
        loop {
            let rows = match self.read.scan(table, &from, ALL.1, ROWS_MAX) {
                Ok(rows) => rows,
                // Behind it nothing can be read.
                Err(error) => return self.fault(format!("table {table}"), error.to_string()),
            };
            let Some((last, _)) = rows.last() else { return };
            from = [last, &[0][..]].concat();
            for (key, value) in &rows {
                let place = format!("row {} of {table}", hex(key));
                match decode::<T>(|| place.clone(), value) {
                    Ok(row) if belongs(key, &row) => {}
                    Ok(_) => self.fault(place, "it is of a volume that is not there".into()),
                    Err(error) => self.fault(place, error.to_string()),
                }
            }
        }
    }

    fn fault(&mut self, place: String, what: String) {
        self.faults.push(RowFault { place, what });
    }
}
