//! Draws a bar chart of the rates, with one group of bars per number of tasks.

use std::path::Path;

use plotters::prelude::*;

use crate::comparison::Outcome;
use crate::ratio;

/// The size of the chart in pixels.
const SIZE: (u32, u32) = (760, 360);

/// Colour-blind readers can distinguish these colours.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xf0, 0xe4, 0x42),
];

const FILLED: f64 = 0.8;

/// Draws the rates of those `outcomes` that differ only in the number of tasks.
pub(crate) fn rates(outcomes: &[Outcome], path: &Path) -> Result<(), String> {
    let groups: Vec<_> =
        outcomes.iter().filter(|outcome| outcome.scenario.is_plain()).map(Group::of).collect();
    draw(&groups, path).map_err(|error| format!("{}: {error}", path.display()))
}

struct Group {
    tasks: usize,
    bars: Vec<(&'static str, f64)>,
}

impl Group {
    fn of(outcome: &Outcome) -> Self {
        let bars = outcome.measured.iter().map(|(name, tally)| (*name, ratio::rate(tally)));
        Self { tasks: outcome.scenario.tasks, bars: bars.collect() }
    }
}

fn draw(groups: &[Group], path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let rates = groups.iter().flat_map(|group| &group.bars).map(|(_, rate)| *rate);
    let highest = rates.fold(1.0, f64::max) * 1.05;
    let count = u32::try_from(groups.len()).unwrap_or_default();
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..f64::from(count.max(1)), 0.0..highest)?;
    let tasks = |at: &f64| name_of(groups, *at);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(2 * groups.len() + 1)
        .x_label_formatter(&tasks)
        .x_desc("concurrent tasks, each with its own key")
        .y_label_formatter(&|rate| format!("{rate:.0}"))
        .y_desc("acquire and release, cycles/s")
        .draw()?;
    let names: Vec<_> = groups.first().map_or(&[][..], |group| &group.bars).iter().collect();
    for (place, (name, _)) in names.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let bars = (0_u32..).zip(groups).filter_map(|(left, group)| {
            let (_, rate) = group.bars.get(place)?;
            let width = FILLED / f64::from(u32::try_from(names.len()).ok()?);
            let left = f64::from(left)
                + (1.0 - FILLED) / 2.0
                + width * f64::from(u32::try_from(place).ok()?);
            Some(Rectangle::new([(left, 0.0), (left + width, *rate)], colour.filled()))
        });
        let key = move |(x, y): (i32, i32)| {
            Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
        };
        chart.draw_series(bars)?.label(*name).legend(key);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

/// Returns the label below a group, which is its number of tasks. Positions without a group have no label.
fn name_of(groups: &[Group], at: f64) -> String {
    let is_here = |left: u32| (at - f64::from(left) - 0.5).abs() < 1e-6;
    let here = (0_u32..).zip(groups).find(|(left, _)| is_here(*left));
    here.map(|(_, group)| group.tasks.to_string()).unwrap_or_default()
}
