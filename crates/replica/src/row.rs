//! Reading one row of the origin's own tables.

use crate::error::Result;
use minicbor::Decode;
use store::Read;
use volume::whole::decode;

/// What a row holds; none if there is no such row. Errors: `Damaged`, with the table's name.
pub(crate) fn get<T: for<'b> Decode<'b, ()>>(
    read: &dyn Read,
    table: &'static str,
    key: &[u8],
) -> Result<Option<T>> {
    match read.get(table, key)? {
        Some(bytes) => Ok(Some(decode(|| format!("a row of {table}"), &bytes)?)),
        None => Ok(None),
    }
}
