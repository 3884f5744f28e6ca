//! Containers get other names, and more of them.

use super::{HOLE_BYTES, covers};
use crate::container::{Container, Containers, Key};
use crate::error::Result;

pub(super) fn containers_change_names(containers: &impl Containers) -> Result<()> {
    let [old, new, copied] = [5, 6, 7].map(|generation| Key { file: 0xabcd, generation });
    let container = containers.open(old, true)?.expect("it was to be made");
    container.write(HOLE_BYTES, b"as it was")?;
    assert!(containers.rename(old, new)?);
    assert!(!containers.rename(old, new)?, "there is nothing of that name any more");
    assert!(containers.open(old, false)?.is_none());
    let renamed = containers.open(new, false)?.expect("it bears this name now");
    container.write(HOLE_BYTES, b"AS")?;
    assert_eq!(renamed.read(HOLE_BYTES, 100)?, b"AS it was", "who had it open has it still");

    assert!(!containers.copy(old, copied, u64::MAX)?, "nothing to copy");
    assert!(containers.copy(new, copied, HOLE_BYTES + 9)?);
    container.write(HOLE_BYTES, b"is")?;
    let copy = containers.open(copied, false)?.expect("it was made");
    assert_eq!(copy.read(HOLE_BYTES, 100)?, b"AS it was", "a copy is its own");
    assert_eq!(copy.length()?, HOLE_BYTES + 9);
    assert!(!covers(&copy.data(0, u64::MAX / 4)?, 0, 1), "the hole is one still");

    let other = containers.open(old, true)?.expect("it was to be made");
    other.write(0, b"other")?;
    assert!(containers.rename(old, copied)?, "over another");
    assert_eq!(containers.open(copied, false)?.expect("renamed").read(0, 9)?, b"other");
    assert_eq!(copy.read(HOLE_BYTES, 2)?, b"AS", "who has it open keeps it");
    container.write(0, &[7; 3 << 20])?;
    let mut steps = 0;
    assert!(containers.copy_in_steps(new, copied, u64::MAX, &mut || steps += 1)?, "over another");
    assert!(steps == 0 || steps >= 3, "at once, or in bounded steps: {steps}");
    assert_eq!(other.read(0, 9)?, b"other", "who has it open keeps it");
    Ok(())
}

pub(super) fn containers_have_several_names(containers: &impl Containers) -> Result<()> {
    let [first, second, other] = [8, 9, 10].map(|generation| Key { file: 0xabce, generation });
    assert!(!containers.link(first, second)?, "there is none of that name");
    let container = containers.open(first, true)?.expect("it was to be made");
    container.write(0, b"as it was")?;
    let before = containers.open(second, true)?.expect("it was to be made");
    before.write(0, b"before")?;
    assert!(!containers.is_linked(first)? && !containers.is_linked(other)?);
    assert!(containers.link(first, second)?, "in place of another");
    assert!(containers.is_linked(first)? && containers.is_linked(second)?);
    assert_eq!(before.read(0, 9)?, b"before", "who has it open keeps it");
    let linked = containers.open(second, false)?.expect("it bears this name too");
    linked.sync()?;
    linked.write(0, b"AS")?;
    assert_eq!(container.read(0, 9)?, b"AS it was");
    assert!(containers.link(first, second)?, "once more");
    containers.remove(first)?;
    assert!(!containers.is_linked(second)? && containers.open(first, false)?.is_none());
    assert_eq!(containers.open(second, false)?.expect("it is left").read(0, 9)?, b"AS it was");
    containers.remove(second)
}
