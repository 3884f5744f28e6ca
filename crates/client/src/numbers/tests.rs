use super::*;
use world::World;

const FILE: FileId = FileId(77);
const OWN: Inode = Inode { number: 77, thread: 5 };

fn now() -> Moment {
    World::real().clock.moment()
}

fn by(number: u64, thread: u32) -> Inode {
    Inode { number, thread }
}

#[test]
fn a_file_is_found_by_its_own_number_until_it_gets_another() {
    let (numbers, now) = (Numbers::default(), now());
    assert_eq!((numbers.tell(FILE), numbers.has_several(FILE)), (77, false));
    assert!(numbers.place(FILE, OWN, now).is_current());
    assert!(numbers.refuse(FILE, OWN, false, now));
    let other = numbers.tell(FILE);
    assert!(other != 77 && numbers.has_several(FILE));
    assert_eq!((numbers.file(77), numbers.file(other)), (FILE, FILE));
    assert!(numbers.place(FILE, by(other, 6), now).is_current());
    assert!(!numbers.place(FILE, by(77, 6), now).is_current());
    // Of two that find it in the way at once, one gives it another.
    assert!(!numbers.refuse(FILE, OWN, false, now));
    assert_eq!((numbers.tell(FILE), numbers.all(FILE)), (other, vec![77, other]));
    assert_eq!(numbers.file(78), FileId(78));
    assert_eq!(numbers.file(u64::MAX), FileId(u64::MAX), "of a snapshot");
}

/// The kernel looks it up, forgets what it has found, and looks it up once more.
#[test]
fn a_new_number_is_there_though_the_kernel_forgets_it_while_it_looks_the_path_up() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, OWN, false, now);
    let other = numbers.tell(FILE);
    assert_eq!(numbers.forgotten(other, 1), FILE);
    assert_eq!(numbers.tell(FILE), other);
    // And the one after it.
    numbers.refuse(FILE, by(other, 6), false, now);
    let third = numbers.tell(FILE);
    numbers.forgotten(third, 1);
    assert_eq!((numbers.tell(FILE), numbers.all(FILE)), (third, vec![77, other, third]));
    numbers.forgotten(other, 1);
    assert_eq!(numbers.all(FILE), [77, third], "an older one is forgotten");
}

#[test]
fn what_the_kernel_has_by_no_number_is_found_by_its_own_again() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, OWN, false, now);
    let other = numbers.tell(FILE);
    numbers.forgotten(other, 1);
    numbers.let_go(FILE);
    assert_eq!((numbers.tell(FILE), numbers.has_several(FILE)), (77, false));
    // A number is not used again.
    numbers.refuse(FILE, OWN, false, now);
    assert!(![77, other].contains(&numbers.tell(FILE)));
}

#[test]
fn an_older_number_that_is_free_takes_over() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, OWN, false, now);
    let other = numbers.tell(FILE);
    numbers.take_over(FILE, 77);
    assert_eq!((numbers.tell(FILE), numbers.all(FILE)), (77, vec![77, other]));
    numbers.forgotten(other, 1);
    assert!(!numbers.has_several(FILE));
}

#[test]
fn who_comes_to_the_same_number_again_is_told_from_who_found_another() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, OWN, false, now);
    let other = numbers.tell(FILE);
    let found = numbers.place(FILE, by(other, OWN.thread), now);
    assert!(found.is_fresh && !found.is_retry);
    numbers.is_taken(FILE);
    assert!(!numbers.place(FILE, by(other, 6), now).is_fresh);
    numbers.refuse(FILE, OWN, false, now);
    assert!(!numbers.place(FILE, by(77, 6), now).is_retry, "another thread");
    assert!(numbers.place(FILE, OWN, now).is_retry);
    assert!(!numbers.place(FILE, OWN, now).is_retry, "it is told once more");
    numbers.refuse(FILE, OWN, false, now);
    assert!(!numbers.place(FILE, OWN, now + LOOKED_UP_WITHIN).is_retry, "that was long ago");
}
