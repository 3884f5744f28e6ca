//! Messages in a few words, for the trace.

use model::{Change, FileId, Stamp, Update};
use protocol::{Delta, Notice, Request, Response, States, Tail, Verdict, Wanted};

pub(super) fn request(request: &Request) -> String {
    match request {
        Request::Attach(attach) => format!(
            "Attach as {:?}, made {}, seen {}",
            attach.replica.map(|replica| replica.0),
            attach.made,
            attach.seen
        ),
        Request::Renew { seen } => format!("Renew, seen {seen}"),
        Request::List { directory, after, deep, .. } => {
            format!("List {directory} after {after:?}{}", if *deep { ", deep" } else { "" })
        }
        Request::Inspect { nodes, entries } => format!("Inspect {nodes:?} {entries:?}"),
        Request::Recipe { file, version, .. } => format!("Recipe of {file} at {version:?}"),
        Request::Read { file, version, ranges, base, .. } => {
            let with = base.map(|base| format!(", with v{}", base.version)).unwrap_or_default();
            format!("Read {file} at {version}: {} ranges{with}", ranges.len())
        }
        Request::Put { payload, deltas: coded } => {
            format!("Put {} chunks{}", payload.lengths.len(), deltas(coded))
        }
        Request::Submit(submit) => format!(
            "Submit{} settled {}: {}{}",
            if submit.strict { " strictly," } else { "," },
            submit.settled,
            submit.updates.iter().map(update).collect::<Vec<_>>().join("; "),
            deltas(&submit.deltas)
        ),
        Request::Measure => "Measure".into(),
        Request::Told => "Told".into(),
        Request::Patience(patience) => {
            format!("Patience below {:?} but {:?}", patience.below, patience.but)
        }
        Request::Leave => "Leave".into(),
        Request::Gather { files, sought, .. } => {
            let files: Vec<_> = files.iter().map(|wish| wish.file.to_string()).collect();
            format!("Gather {sought:?} of {}", files.join(" "))
        }
        Request::Inside { file, version, stretch } => {
            format!("Inside {file} at {version}, {} bytes", stretch.length)
        }
        Request::Find { names } => format!("Find {} chunks", names.len()),
        Request::Lock(locking) => format!(
            "Lock {}: holds {:?}, wishes {:?}",
            locking.held.file, locking.held.locks, locking.wished
        ),
        Request::Past(past) => format!("Past {past:?}"),
    }
}

pub(super) fn response(response: &Response) -> String {
    match response {
        Response::Attached(attached) => format!(
            "Attached {}, taken {}, {}{}",
            attached.replica,
            attached.taken,
            tail(&attached.tail),
            wanted(&attached.wanted)
        ),
        Response::Renewed { tail: renewed, wanted: lost, .. } => {
            format!("Renewed, {}{}", tail(renewed), wanted(lost))
        }
        Response::Listing(listing) => format!(
            "Listing as of {}: {} directories, {} nodes",
            listing.as_of,
            listing.directories.len(),
            listing.nodes.len()
        ),
        Response::Inspected(found) => format!("Inspected {}", states(found)),
        Response::Recipe(fetched) => format!(
            "Recipe of version {}: {} bytes, {} recipe chunks{}",
            fetched.version,
            fetched.contents.size,
            fetched.recipe.len(),
            match (&fetched.bytes, &fetched.delta) {
                (Some(_), _) => ", with the contents".into(),
                (None, Some(sent)) => format!(", with {}", delta(sent)),
                (None, None) => String::new(),
            }
        ),
        Response::Bytes(payload) => format!("Bytes of {} chunks", payload.lengths.len()),
        Response::Delta(sent) => delta(sent),
        Response::Gathered(gathered) => format!(
            "Gathered {} files, {} chunks{}",
            gathered.portions.len(),
            gathered.payload.lengths.len(),
            gathered.sequel.as_ref().map_or(String::new(), |sequel| {
                format!(", {} in {} bytes as a sequel", sequel.lengths.len(), sequel.bytes.len())
            })
        ),
        Response::Stored { useless, .. } => format!("Stored{}", bases(useless)),
        Response::Submitted(submitted) => format!(
            "Submitted [{}], {} chunks missing{}, {}",
            submitted.verdicts.iter().map(verdict).collect::<Vec<_>>().join(", "),
            submitted.missing.len(),
            bases(&submitted.useless),
            states(&submitted.states)
        ),
        Response::Measured(_) => "Measured".into(),
        Response::Inside(names) => format!("Inside, {} bytes of names", names.len()),
        Response::Found(bits) => {
            let there: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
            format!("Found {there} chunks")
        }
        Response::Locked(locked) => format!("Locked: {:?}", locked.outcome),
        Response::Past(found) => format!("Past: {found:?}"),
        Response::Left => "Left".into(),
        Response::Told(seq) => format!("Told({seq})"),
        Response::Heeded => "Heeded".into(),
        Response::Refused(refusal) => format!("Refused: {refusal}"),
    }
}

fn delta(delta: &Delta) -> String {
    let (base, chunks) = (delta.base, delta.lengths.len());
    format!("{chunks} chunks in {} bytes over {} v{}", delta.bytes.len(), base.file, base.version)
}

fn deltas(deltas: &Option<Vec<Delta>>) -> String {
    deltas.iter().flatten().map(|sent| format!(", {}", delta(sent))).collect()
}

fn bases(bases: &Option<Vec<(FileId, Stamp)>>) -> String {
    let told = |(file, version): &(FileId, Stamp)| format!(", no use for {file} v{version}");
    bases.iter().flatten().map(told).collect()
}

pub(super) fn notice(notice: &Notice) -> String {
    format!("up to {}: {}", notice.upto, states(&notice.states))
}

fn tail(tail: &Tail) -> String {
    match tail {
        Tail::Changes(changes) => notice(changes),
        Tail::TooFar(upto) => format!("too far, up to {upto}"),
    }
}

fn wanted(wanted: &Option<Wanted>) -> String {
    let told = |wanted: &Wanted| {
        let asked: usize = wanted.versions.iter().map(|version| version.chunks.len()).sum();
        format!(", {} chunks missing, {asked} asked for", wanted.missing)
    };
    wanted.as_ref().map(told).unwrap_or_default()
}

fn states(states: &States) -> String {
    let nodes = states.nodes.iter().map(|state| match &state.node {
        Some(node) => format!("{}{} v{}", state.file, state.seq, node.contents_stamp),
        None => format!("{}{} gone", state.file, state.seq),
    });
    let entries = states.entries.iter().map(|state| match state.file {
        Some(file) => format!("{}/{}{}={file}", state.directory, state.name, state.seq),
        None => format!("{}/{}{} gone", state.directory, state.name, state.seq),
    });
    nodes.chain(entries).collect::<Vec<_>>().join(" ")
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Taken(seq) => format!("taken {seq}"),
        Verdict::KeptAside { seq, directory, name, .. } => {
            format!("kept aside {seq} as {directory}/{name}")
        }
        Verdict::Refused(objection) => format!("refused: {objection}"),
    }
}

fn update(update: &Update) -> String {
    let what = match &update.change {
        Change::Make { parent, name, file, kind, .. } => {
            format!("make {kind:?} {parent}/{name}={file}")
        }
        Change::Link { parent, name, file } => format!("link {parent}/{name}={file}"),
        Change::Unlink { parent, name, file, .. } => format!("unlink {parent}/{name}={file}"),
        Change::Rename { from, from_name, to, to_name, file, over, exchange, whiteout, .. } => {
            format!(
                "{} {from}/{from_name}={file} {to}/{to_name}={over:?}{}",
                if *exchange { "exchange" } else { "rename" },
                whiteout.map(|left| format!(", leaves {}", left.file)).unwrap_or_default()
            )
        }
        Change::Store { file, expects, contents, .. } => {
            format!("store {file}, {} bytes, over v{expects}", contents.size)
        }
        Change::SetAttributes { file, set, .. } => format!("set {file} {set:?}"),
        Change::SetXattr { file, name, .. } => {
            format!("set xattr {file} {}", String::from_utf8_lossy(name))
        }
        Change::RemoveXattr { file, name, .. } => {
            format!("remove xattr {file} {}", String::from_utf8_lossy(name))
        }
    };
    format!("{} {what}", update.stamp)
}
