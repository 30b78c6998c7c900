//! The fencing section: writes after the end of a lease, and how many of them the cells refused.

use super::{
    findings::{holder, more},
    html::Html,
    words::{at, count, counted, number},
};
use crate::record::WIPE;
use crate::record::{Breach, BreachKind, Run};

const MOST_LISTED: usize = 50;

pub(super) fn section(out: &mut Html, run: &Run) {
    let fencing = &run.fencing;
    out.raw("<section>\n<h2>Fencing</h2>\n");
    if fencing.tokens == 0 {
        out.raw("<p>No lock was acquired with a fencing token.</p>\n</section>\n");
        return;
    }
    out.raw(
        "<p>A lease can end before its holder notices it, for example if the process stalls between \
         checking the lease and writing. Therefore, most locks of this run have a fencing token, a \
         number that increases with each holder. The resource stores the highest token that it has \
         received, and refuses writes with lower ones. To test this, some holders write without \
         checking the lease, or after its end.</p>\n\
         <dl class=\"figures\">",
    );
    out.define("Tokens", count(fencing.tokens));
    out.define("Tokens compared with an earlier one", count(fencing.ordered));
    out.define("Leases that expired in a stopped process", count(fencing.slept_through));
    out.define("Writes accepted", count(fencing.accepted));
    out.define("Writes after the end of the lease", count(fencing.late));
    out.define("Writes refused", count(fencing.refused));
    out.raw("</dl>\n");
    let refused = BreachKind::HolderRefused.count(&fencing.excused);
    let caught = fencing.refused.saturating_sub(refused);
    out.put(format_args!(
        "<p>{} refused, because a later holder had written. Until a later holder writes, a late \
         write is harmless and is accepted.</p>\n",
        counted(caught, "late write was", "late writes were"),
    ));
    excused(out, run, refused);
    list(out, &run.findings.breaches);
    out.raw("</section>\n");
}

/// Writes the number of fencing violations that are not findings, and the reason.
fn excused(out: &mut Html, run: &Run, refused: u64) {
    if refused > 0 {
        out.put(format_args!(
            "<p>{} refused while the lease was valid, because another client also held the lock. This \
             is possible outside the guarantee. The resource accepted only the higher token.</p>\n",
            counted(refused, "holder was", "holders were"),
        ));
    }
    let wipes = run.faults.iter().filter(|fault| fault.nemesis == WIPE).count();
    if wipes > 0 {
        let across = number(run.fencing.excused.len()) - refused;
        out.put(format_args!(
            "<p>All nodes lost all data at once {}, including the token counters. New tokens then start \
             from the wall clock, which all clients of this run share. {} detected after such a loss, \
             and not counted as findings.</p>\n",
            counted(number(wipes), "time", "times"),
            counted(across, "violation was", "violations were"),
        ));
    }
}

fn list(out: &mut Html, breaches: &[Breach]) {
    if breaches.is_empty() {
        return;
    }
    let all = counted(number(breaches.len()), "violation", "violations");
    out.put(format_args!("<h3>{all}</h3>\n<ol class=\"overlaps\">\n"));
    for breach in breaches.iter().take(MOST_LISTED) {
        let Breach { kind, first, second, under } = breach;
        let name = kind.names().0;
        out.put(format_args!(
            "<li><h4>Resource {}: {name}</h4><p>at {}</p><dl>",
            first.resource,
            at(second.from)
        ));
        for (term, hold) in [("First holder", first), ("Second holder", second)] {
            let token = hold.token.map_or_else(|| "none".into(), |token| token.to_string());
            let asked = at(hold.asked);
            out.define(term, format_args!("token {token}, requested at {asked}, {}", holder(hold)));
        }
        let under = if under.is_empty() { "none".into() } else { under.join(", ") };
        out.define("Active faults", under);
        out.raw("</dl></li>\n");
    }
    out.raw("</ol>\n");
    more(out, breaches.len(), MOST_LISTED);
}
