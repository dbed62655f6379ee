//! Plots as SVG: spreads of times, and values as dots, a row for each store, with labels at what they say. Colours come
//! from the page.

use std::fmt::Write;

use super::figures::Unit;
use super::statistics::{BINS, Bin, Figure};

const MARGIN: f64 = 14.0;
/// Where dots begin, right of what they are called.
const COLUMN: f64 = 92.0;
/// More than a value takes.
const VALUE: f64 = 72.0;
/// From the top of a row to the ground of its lane, and how high a lane is.
const GROUND: f64 = 60.0;
const LANE: f64 = 34.0;
const ROW: f64 = 74.0;
/// A line with one dot.
const LINE: f64 = 21.0;
const HEAD: f64 = 24.0;
/// The axis with its numbers and its title.
const FOOT: f64 = 44.0;

/// A store's times.
pub(super) struct Spread<'a> {
    pub(super) name: &'a str,
    pub(super) bins: &'a [Bin],
    pub(super) median: f64,
    pub(super) tail: f64,
}

/// Values that belong together.
pub(super) struct Dots<'a> {
    /// What they are of; nothing if each says it.
    pub(super) name: &'a str,
    /// What each is called, and its value.
    pub(super) lines: Vec<(&'a str, Figure)>,
}

/// How times are spread: an area for each store, over a logarithmic axis.
pub(super) fn spreads(rows: &[Spread<'_>], width: f64, title: &str) -> String {
    let ends = rows.iter().flat_map(|row| row.bins).map(|bin| bin.from_us);
    let axis = Axis::log(ends.chain(rows.iter().flat_map(|row| [row.median, row.tail])), MARGIN, width);
    let height = ROW * rows.len() as f64 + FOOT;
    let mut svg = open(width, height, title);
    axis.draw(&mut svg, Unit::Time, height, title);
    for (number, row) in rows.iter().enumerate() {
        let top = ROW * number as f64;
        let ground = top + GROUND;
        let [median, tail] = [row.median, row.tail].map(|value| Unit::Time.show(value));
        head(&mut svg, top, row.name, &format!("median {median}, p99 {tail}"));
        let _ = write!(svg, r#"<path class="area" d="{}"/>"#, area(row.bins, &axis, ground));
        for (class, value, up) in [("mark", row.median, LANE), ("tail", row.tail, LANE / 2.0)] {
            let (x, from) = (axis.at(value), ground - up);
            let _ = write!(svg, r#"<line class="{class}" x1="{x:.1}" x2="{x:.1}" y1="{from:.1}" y2="{ground:.1}"/>"#);
        }
    }
    svg.push_str("</svg>");
    svg
}

/// The outline of a histogram whose highest bin fills the lane.
fn area(bins: &[Bin], axis: &Axis, ground: f64) -> String {
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1) as f64;
    let step = 10_f64.powf(1.0 / BINS);
    let mut path = String::new();
    for bin in bins {
        let (from, to) = (axis.at(bin.from_us), axis.at(bin.from_us * step));
        // What is there at all shall be seen.
        let top = ground - (LANE * bin.count as f64 / most).max(1.0);
        let _ = write!(path, "M{from:.1} {ground:.1}V{top:.1}H{to:.1}V{ground:.1}Z");
    }
    path
}

/// Values as dots, with a line from the lowest round to the highest.
pub(super) fn dots(rows: &[Dots<'_>], unit: Unit, width: f64, title: &str) -> String {
    let figures = || rows.iter().flat_map(|row| &row.lines).map(|line| &line.1);
    let axis = match unit {
        // What ends with a lease is compared with it, from zero.
        Unit::Time => Axis::linear(figures().map(|figure| figure.high), COLUMN, width),
        _ => Axis::log(figures().flat_map(|figure| [figure.low, figure.median, figure.high]), COLUMN, width),
    };
    let head_of = |row: &Dots<'_>| if row.name.is_empty() { LINE / 2.0 } else { HEAD };
    let tall = |row: &Dots<'_>| head_of(row) + LINE * row.lines.len() as f64;
    let height = rows.iter().map(tall).sum::<f64>() + FOOT;
    let mut svg = open(width, height, title);
    axis.draw(&mut svg, unit, height, title);
    let mut top = 0.0;
    for row in rows {
        head(&mut svg, top, row.name, "");
        for (number, line) in row.lines.iter().enumerate() {
            let y = top + head_of(row) + LINE * (number as f64 + 0.3);
            let (x, low, high) = (axis.at(line.1.median), axis.at(line.1.low), axis.at(line.1.high));
            // On the side where there is room.
            let (at, anchor) = if high + VALUE > width { (low - 9.0, "end") } else { (high + 9.0, "start") };
            let text = y + 4.0;
            let _ = write!(
                svg,
                r#"<line class="range" x1="{low:.1}" x2="{high:.1}" y1="{y:.1}" y2="{y:.1}"/><circle class="dot" cx="{x:.1}" cy="{y:.1}" r="4.5"/><text class="value" x="{at:.1}" y="{text:.1}" text-anchor="{anchor}">{}</text><text class="value" x="0" y="{text:.1}">{}</text>"#,
                unit.show(line.1.median),
                escape(line.0)
            );
        }
        top += tall(row);
    }
    svg.push_str("</svg>");
    svg
}

fn open(width: f64, height: f64, title: &str) -> String {
    let title = escape(title);
    format!(r#"<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{title}">"#)
}

fn head(svg: &mut String, top: f64, name: &str, rest: &str) {
    let _ = write!(
        svg,
        r#"<text class="name" x="0" y="{:.1}">{}<tspan class="value" dx="8">{}</tspan></text>"#,
        top + 16.0,
        escape(name),
        escape(rest)
    );
}

/// From values to places.
struct Axis {
    log: bool,
    from: f64,
    to: f64,
    left: f64,
    right: f64,
}

impl Axis {
    /// Whole decades around all that is positive.
    fn log(values: impl Iterator<Item = f64>, left: f64, width: f64) -> Self {
        let exponents = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = exponents.fold((f64::MAX, f64::MIN), |(low, high), one| (low.min(one), high.max(one)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low.floor(), high.ceil()) };
        Self { log: true, from: low, to: high.max(low + 1.0), left, right: width - MARGIN }
    }

    fn linear(values: impl Iterator<Item = f64>, left: f64, width: f64) -> Self {
        let most = values.fold(1.0, f64::max);
        let step = step(most);
        Self { log: false, from: 0.0, to: (most / step).ceil() * step, left, right: width - MARGIN }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-9).log10() } else { value };
        let share = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.left + share * (self.right - self.left)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            (self.from as i32..=self.to as i32).map(|exponent| 10_f64.powi(exponent)).collect()
        } else {
            let step = step(self.to);
            (0..=(self.to / step).round() as u32).map(|number| f64::from(number) * step).collect()
        }
    }

    /// Grid, numbers and title.
    fn draw(&self, svg: &mut String, unit: Unit, height: f64, title: &str) {
        let ground = height - FOOT + 4.0;
        let ticks = self.ticks();
        for (number, &tick) in ticks.iter().enumerate() {
            let x = self.at(tick);
            let anchor = match number {
                0 => "start",
                last if last + 1 == ticks.len() => "end",
                _ => "middle",
            };
            // The outer ones keep within the picture.
            let shift = match anchor {
                "start" => -MARGIN / 2.0,
                "end" => MARGIN / 2.0,
                _ => 0.0,
            };
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="0" y2="{ground:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
                x + shift,
                ground + 15.0,
                round(unit, tick)
            );
        }
        let scale = if self.log { ", log scale" } else { "" };
        let (x, y) = (f64::midpoint(self.left, self.right), ground + 34.0);
        let title = escape(title);
        let _ = write!(svg, r#"<text class="tick" x="{x:.1}" y="{y:.1}" text-anchor="middle">{title}{scale}</text>"#);
    }
}

/// Of a linear axis: 1, 2 or 5 times a power of ten, so that there are two to five.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| most / step <= 5.0).unwrap_or(most)
}

/// A number of an axis, without needless zeros.
fn round(unit: Unit, value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // What is counted per second, the axis's title says.
    let shown = unit.show(value);
    let shown = shown.trim_end_matches("/s");
    let (number, suffix) = shown.split_at(shown.find([' ', 'k', 'M']).unwrap_or(shown.len()));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{suffix}")
}

/// Text in a page.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        let log = Axis::log([37.0, 9_000.0, 0.0].into_iter(), MARGIN, 400.0);
        assert_eq!(
            log.ticks().iter().map(|&tick| round(Unit::Time, tick)).collect::<Vec<_>>(),
            ["10 µs", "100 µs", "1 ms", "10 ms"]
        );
        assert_eq!((log.at(10.0), log.at(10_000.0)), (MARGIN, 400.0 - MARGIN));
        let linear = Axis::linear([1_790_000.0].into_iter(), MARGIN, 400.0);
        assert_eq!(
            linear.ticks().iter().map(|&tick| round(Unit::Time, tick)).collect::<Vec<_>>(),
            ["0", "500 ms", "1 s", "1.5 s", "2 s"]
        );
        assert_eq!(round(Unit::PerSecond, 1e5), "100k");
    }

    #[test]
    fn names_cannot_break_the_page() {
        let figure = Figure { median: 1.0, low: 1.0, high: 1.0, rounds: 1 };
        let rows = [Dots { name: "<script>", lines: vec![("a", figure)] }];
        assert!(!dots(&rows, Unit::PerSecond, 300.0, "x").contains("<script>"));
    }
}
