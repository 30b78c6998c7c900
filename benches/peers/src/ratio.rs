//! Compares the rates of two contenders.

use serde_json::{Value, json};

use crate::digits::{digits, float, times};
use crate::tally::{Measurements, Sample};

/// The ratio of a contender's rate to the base's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ratio {
    /// Statistics of one ratio per round. Each ratio compares the two rates of the same round.
    Paired { median: f64, min: f64, max: f64 },
    /// The ratio of the mean rates, which is used if the base completed no cycle in some round.
    Means(f64),
    /// A lower limit, because the base completed no cycle. It is the ratio that one completed cycle of the base would
    /// give.
    MoreThan(f64),
    /// Neither contender completed a cycle.
    Unknown,
}

impl Ratio {
    pub(crate) fn of(samples: &[Sample], base: &[Sample]) -> Self {
        let (rate, base_rate) = (mean_rate(samples), mean_rate(base));
        let base_s: f64 = base.iter().map(|sample| sample.elapsed.as_secs_f64()).sum();
        if rate <= 0.0 && base_rate <= 0.0 {
            Self::Unknown
        } else if base_rate <= 0.0 {
            Self::MoreThan(rate * base_s)
        } else if base.iter().any(|sample| sample.cycles == 0) {
            Self::Means(rate / base_rate)
        } else {
            let ratios: Vec<f64> =
                samples.iter().zip(base).map(|(sample, base)| sample.rate / base.rate).collect();
            Self::Paired {
                min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
                max: ratios.iter().copied().fold(0.0, f64::max),
                median: median(ratios),
            }
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Paired { median, min, max } => {
                format!("{} ({} to {})", times(median), digits(min), digits(max))
            }
            Self::Means(ratio) => times(ratio),
            Self::MoreThan(ratio) => format!("> {}", times(ratio)),
            Self::Unknown => "-".to_owned(),
        }
    }

    pub(crate) fn json(self) -> Value {
        match self {
            Self::Paired { median, min, max } => {
                json!({ "median": median, "min": min, "max": max })
            }
            Self::Means(ratio) => json!({ "of_means": ratio }),
            Self::MoreThan(ratio) => json!({ "more_than": ratio }),
            Self::Unknown => Value::Null,
        }
    }
}

/// Returns the median rate in cycles per second.
pub(crate) fn rate(tally: &Measurements) -> f64 {
    median(tally.samples.iter().map(|sample| sample.rate).collect())
}

fn mean_rate(samples: &[Sample]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| sample.rate).sum();
    sum / float(samples.len().max(1) as u64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ratio, median};
    use crate::node_usage::NodeUsage;
    use crate::tally::Sample;
    use crate::usage::Usage;

    fn samples(rates: &[f64]) -> Vec<Sample> {
        let of = |&rate: &f64| Sample {
            cycles: u64::from(rate > 0.0),
            failed: 0,
            rate,
            elapsed: Duration::from_secs(2),
            usage: Usage::default(),
            nodes: NodeUsage::default(),
        };
        rates.iter().map(of).collect()
    }

    #[test]
    fn slices_of_the_same_round_are_compared() {
        let ratio = Ratio::of(&samples(&[10.0, 30.0, 80.0]), &samples(&[10.0, 10.0, 20.0]));
        assert_eq!(ratio, Ratio::Paired { median: 3.0, min: 1.0, max: 4.0 });
        assert_eq!(ratio.text(), "3.00x (1.00 to 4.00)");
    }

    #[test]
    fn base_without_cycles_gives_other_ratios() {
        let ratio = |base: &[f64]| Ratio::of(&samples(&[10.0, 30.0]), &samples(base));
        assert_eq!(ratio(&[0.0, 20.0]), Ratio::Means(2.0));
        assert_eq!(ratio(&[0.0, 0.0]), Ratio::MoreThan(80.0), "one cycle in four seconds");
        assert_eq!(Ratio::of(&samples(&[0.0]), &samples(&[0.0])), Ratio::Unknown);
    }

    #[test]
    fn median_of_an_even_number_is_the_midpoint() {
        for (values, expected) in [(vec![], 0.0), (vec![3.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0], 2.5)]
        {
            assert!((median(values) - expected).abs() < 1e-9, "{expected}");
        }
    }
}
