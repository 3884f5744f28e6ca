//! The rows that go by names: reading which there are, and moving them.
//! Never: holds a lock on them while it waits for the tables.

use super::{Fate, Followed, Of, Place};
use crate::client::{Client, error_of};
use crate::types::Error;
use model::FileId;
use protocol::Upstream;
use store::{Containers, Durability};

impl<U: Upstream, C: Containers> Client<U, C> {
    /// All rows that go by a name.
    pub(super) fn followed(&self) -> Vec<Followed> {
        let row = |of, file: &FileId, place: &Option<Place>| Followed {
            of,
            file: *file,
            place: place.clone(),
        };
        let mut rows: Vec<Followed> = {
            let pins = self.pins();
            pins.rows().map(|(file, pin)| row(Of::Pins, file, &pin.place)).collect()
        };
        let policies = self.policies();
        rows.extend(policies.rows().map(|(file, it)| row(Of::Policies, file, &it.place)));
        rows
    }

    /// Carries out what becomes of rows, of those at least that are as they were.
    pub(super) fn move_rows(
        &self,
        fates: Vec<(Followed, Fate)>,
        named: Vec<(Followed, Place)>,
    ) -> Result<(), Error> {
        let mut write = self.inner.tables.write().map_err(error_of)?;
        for (row, place) in named {
            match row.of {
                Of::Pins => self.name_pin(&mut *write, &row, place),
                Of::Policies => self.name_policy(&mut *write, &row, place),
            }
            .map_err(error_of)?;
        }
        for (row, fate) in fates {
            let to = match fate {
                Fate::Goes(file) => Some(file),
                _ => None,
            };
            match to {
                Some(to) => {
                    tracing::info!(?row, %to, "another file bears the name, and is kept so")
                }
                None => tracing::info!(?row, "the file is gone, and its directory"),
            }
            match row.of {
                Of::Pins => self.move_pin(&mut *write, &row, to),
                Of::Policies => self.move_policy(&mut *write, &row, to),
            }
            .map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)?;
        self.policies_moved();
        self.inner.keeping.look_at_pins();
        Ok(())
    }

    /// The file for which a row was set that goes by this name, where that file is gone.
    pub fn left_at(&self, place: &Place) -> Result<Option<FileId>, Error> {
        self.follow_names()?;
        let mut rows = self.followed().into_iter();
        Ok(rows.find(|row| row.place.as_ref() == Some(place)).map(|row| row.file))
    }
}
