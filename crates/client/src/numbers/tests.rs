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
    assert!(numbers.refuse(FILE, (OWN, 0), false, now));
    let other = numbers.tell(FILE);
    assert!(other != 77 && numbers.has_several(FILE));
    assert_eq!((numbers.file(77), numbers.file(other)), (FILE, FILE));
    assert!(numbers.place(FILE, by(other, 6), now).is_current());
    assert!(!numbers.place(FILE, by(77, 6), now).is_current());
    // Of two that find it in the way at once, one gives it another.
    assert!(!numbers.refuse(FILE, (OWN, 0), false, now));
    assert_eq!((numbers.tell(FILE), numbers.all(FILE)), (other, vec![77, other]));
    assert_eq!(numbers.file(78), FileId(78));
    assert_eq!(numbers.file(u64::MAX), FileId(u64::MAX), "of a snapshot");
}

/// The kernel looks it up, forgets what it has found, and looks it up once more.
#[test]
fn a_new_number_is_there_though_the_kernel_forgets_it_while_it_looks_the_path_up() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, (OWN, 0), false, now);
    let other = numbers.tell(FILE);
    assert_eq!(numbers.forgotten(other, 1), FILE);
    assert_eq!(numbers.tell(FILE), other);
    // And the one after it.
    numbers.refuse(FILE, (by(other, 6), 0), false, now);
    let third = numbers.tell(FILE);
    numbers.forgotten(third, 1);
    assert_eq!((numbers.tell(FILE), numbers.all(FILE)), (third, vec![77, other, third]));
    numbers.forgotten(other, 1);
    assert_eq!(numbers.all(FILE), [77, third], "an older one is forgotten");
}

#[test]
fn what_the_kernel_has_by_no_number_is_found_by_its_own_again() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, (OWN, 0), false, now);
    let other = numbers.tell(FILE);
    numbers.forgotten(other, 1);
    numbers.let_go(FILE);
    assert_eq!((numbers.tell(FILE), numbers.has_several(FILE)), (77, false));
    // A number is not used again.
    numbers.refuse(FILE, (OWN, 0), false, now);
    assert!(![77, other].contains(&numbers.tell(FILE)));
}

#[test]
fn an_older_number_that_is_free_takes_over() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, (OWN, 0), false, now);
    let other = numbers.tell(FILE);
    numbers.take_over(FILE, 77);
    assert_eq!((numbers.tell(FILE), numbers.all(FILE)), (77, vec![77, other]));
    numbers.forgotten(other, 1);
    assert!(!numbers.has_several(FILE));
}

#[test]
fn who_was_told_to_look_again_is_known_until_he_has_come() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, (OWN, 0), false, now);
    let other = numbers.tell(FILE);
    assert!(!numbers.place(FILE, by(77, 6), now).is_retry, "another thread");
    assert!(!numbers.place(FileId(78), by(78, OWN.thread), now).is_retry, "another file");
    assert!(!numbers.place(FILE, OWN, now + LOOKED_UP_WITHIN).is_retry, "that was long ago");
    // By whichever number he comes, and though he has to try twice.
    for number in [77, other, other] {
        assert!(numbers.place(FILE, by(number, OWN.thread), now).is_retry);
    }
    numbers.has_come(FILE, OWN.thread, true, now);
    assert!(!numbers.place(FILE, OWN, now).is_retry);
}

#[test]
fn a_new_number_stays_free_until_all_have_come_who_were_told_to_look_it_up() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, (OWN, 0), false, now);
    numbers.refuse(FILE, (by(77, 6), 0), false, now);
    let other = numbers.tell(FILE);
    let is_fresh = |at| numbers.place(FILE, by(other, 7), at).is_fresh;
    numbers.has_come(FILE, OWN.thread, true, now);
    assert!(is_fresh(now), "one is still to come");
    numbers.has_come(FILE, 6, true, now);
    assert!(!is_fresh(now));
    numbers.refuse(FILE, (by(other, 8), 0), false, now);
    let third = numbers.tell(FILE);
    numbers.has_come(FILE, 8, false, now);
    assert!(numbers.place(FILE, by(third, 7), now).is_fresh, "who came did not need it");
    assert!(!numbers.place(FILE, by(third, 7), now + LOOKED_UP_WITHIN).is_fresh);
}

#[test]
fn a_number_that_nobody_has_opened_is_told_with_the_size_of_one_version() {
    let (numbers, now) = (Numbers::default(), now());
    let version = |number| Stamp::new(model::ReplicaId(3), number);
    numbers.refuse(FILE, (OWN, 0), false, now);
    let (other, is_new) = numbers.tell_as(FILE, version(1), false);
    assert!(other != 77 && !is_new);
    assert_eq!(numbers.tell_as(FILE, version(1), false), (other, false));
    assert!(numbers.may_be_told_as(FILE, version(1)) && !numbers.may_be_told_as(FILE, version(2)));
    assert_eq!(numbers.tell_as(FILE, version(2), true), (other, false), "it has been opened");
    let (third, is_new) = numbers.tell_as(FILE, version(3), false);
    assert!(third != other && is_new);
    assert!(numbers.place(FILE, by(third, 6), now).is_current());
    assert!(!numbers.place(FILE, by(other, 6), now).is_current());
    numbers.take_over(FILE, other);
    assert!(numbers.may_be_told_as(FILE, version(9)), "nothing is known of what it was told");
}

#[test]
fn a_file_that_the_kernel_has_by_one_number_alone_has_not_several_though_it_is_not_its_own() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, (OWN, 0), false, now);
    let other = numbers.tell(FILE);
    // It was told of its own once, and of the other.
    numbers.left(FILE, 2);
    assert_eq!((numbers.has_several(FILE), numbers.all(FILE)), (true, vec![77, other]));
    numbers.forgotten(77, 1);
    numbers.left(FILE, 1);
    assert_eq!((numbers.has_several(FILE), numbers.all(FILE)), (false, vec![other]));
    assert_eq!((numbers.current(FILE), numbers.file(other)), (other, FILE));
    numbers.refuse(FILE, (by(other, 6), 0), false, now);
    let third = numbers.tell(FILE);
    assert_eq!((numbers.has_several(FILE), numbers.all(FILE)), (true, vec![other, third]));
}

#[test]
fn who_is_told_to_look_again_is_known_with_what_he_could_have_had_then() {
    let (numbers, now) = (Numbers::default(), now());
    numbers.refuse(FILE, (OWN, 4), false, now);
    let other = numbers.tell(FILE);
    let place = numbers.place(FILE, by(other, OWN.thread), now);
    assert!(place.is_retry && place.is_one_of_several);
    assert_eq!((place.since, place.joins), (Some(4), None));
    assert_eq!(numbers.place(FILE, by(other, 6), now).since, None);
}
