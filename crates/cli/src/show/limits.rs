//! How much of the link a mount may use, in words for people.

use crate::units::{show_secs, show_size};
use protocol::{BudgetStatus, DelayStatus, Status};

/// All of it, a line each.
pub fn limits(status: &Status) -> String {
    let rate = |most: Option<u64>| match most {
        Some(rate) => format!("{}/s", show_size(rate)),
        None => "as the link allows".into(),
    };
    let link = &status.link;
    format!(
        "up       {}\ndown     {}\ntickets  {} (interactive : demand : replay)\nbudget   {}\n\
         delay    {}\n",
        rate(link.limit_up),
        rate(link.limit_down),
        link.tickets.as_deref().unwrap_or("8:3:1"),
        budget(&status.budget),
        delay(status.replay_delay)
    )
}

/// What is limited, if anything is.
pub fn in_short(status: &Status) -> Option<String> {
    let rates = [(status.link.limit_up, "up"), (status.link.limit_down, "down")];
    let mut parts: Vec<String> = rates
        .into_iter()
        .filter_map(|(rate, way)| Some(format!("{}/s {way}", show_size(rate?))))
        .collect();
    if status.budget.bytes_max.is_some() {
        parts.push(budget(&status.budget));
    }
    if status.replay_delay.millis > 0 {
        parts.push(format!("delay {}", delay(status.replay_delay)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn budget(budget: &BudgetStatus) -> String {
    let spent = show_size(budget.spent);
    match budget.bytes_max {
        None => format!("none; {spent} have gone over the link this month"),
        Some(most) => {
            let on = if budget.waived { ", and beyond that by `farfs resume`" } else { "" };
            format!("{spent} of {} this month{on}", show_size(most))
        }
    }
}

/// Of what nobody waits for.
fn delay(delay: DelayStatus) -> String {
    let time = match delay.millis {
        0 => return "none: what is done is sent at once".into(),
        millis if millis < 1000 => format!("{millis} ms"),
        millis => show_secs(millis / 1000),
    };
    let why = if delay.for_budget { ", as the link has a budget" } else { "" };
    format!("{time} for what nobody waits for{why}")
}
