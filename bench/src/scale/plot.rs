//! The pictures of a run.

use std::{error::Error, fs, path::PathBuf};

use anyhow::{Context as _, anyhow};
use plotters::{coord::types::RangedCoordf64, prelude::*};

use super::{Course, Limit};

const SIZE: (u32, u32) = (760, 380);
const FONT: (&str, u32) = ("sans-serif", 14);
const MARGIN: u32 = 12;
const LABELS: u32 = 44;
const OURS: RGBColor = RGBColor(0, 104, 183);
const OTHERS: RGBColor = RGBColor(196, 90, 0);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// Draws what replicas keep up with, in multiples of one leader, beside a line that has no losses.
pub(super) fn capacity(leader: f64, limits: &[Limit]) -> anyhow::Result<PathBuf> {
    let times = |proxied: bool| {
        let of = limits.iter().filter(move |limit| limit.proxied == proxied);
        of.map(move |limit| (limit.replicas as f64, limit.kept.per_second / leader)).collect::<Vec<_>>()
    };
    let most = limits.iter().map(|limit| limit.replicas).max().unwrap_or(1) as f64;
    let axes = [("replicas", most * 1.05), ("changes a second, to one leader", most * 1.05)];
    draw("scale-capacity", axes, |chart| {
        let even = LineSeries::new([(0.0, 0.0), (most, most)], BLACK.mix(0.4));
        chart.draw_series(even)?.label("without any loss").legend(|at| line(at, BLACK));
        let ours = times(true);
        chart
            .draw_series(LineSeries::new(ours.clone(), OURS.stroke_width(2)))?
            .label("with Ringside")
            .legend(|at| line(at, OURS));
        chart.draw_series(ours.into_iter().map(|at| Circle::new(at, 4, OURS.filled())))?;
        let native = times(false).into_iter().filter(|(replicas, _)| *replicas > 1.0);
        chart
            .draw_series(native.map(|at| TriangleMarker::new(at, 7, OTHERS.filled())))?
            .label("native shards, Ringside's sharder")
            .legend(|at| line(at, OTHERS));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(FONT)
            .border_style(GRID)
            .background_style(WHITE)
            .draw()?;
        Ok(())
    })
}

/// Draws what changes waited for while replicas came and went.
pub(super) fn course(course: &Course) -> anyhow::Result<PathBuf> {
    let waited: Vec<_> =
        course.waited.iter().enumerate().map(|(at, waited)| (at as f64, waited.as_secs_f64())).collect();
    let last = waited.len() as f64;
    let most = waited.iter().map(|(_, waited)| *waited).fold(1.0, f64::max) * 1.1;
    let axes = [("seconds", last), ("longest wait of the changes of each second, s", most)];
    draw("scale-changes", axes, |chart| {
        for (number, (event, at)) in course.marks.iter().enumerate() {
            let (at, height) = (at.as_secs_f64(), most * (0.98 - 0.06 * (number % 6) as f64));
            chart.draw_series(LineSeries::new([(at, 0.0), (at, most)], OTHERS.mix(0.6)))?;
            chart.draw_series([Text::new(format!(" {event}"), (at, height), FONT)])?;
        }
        chart.draw_series(LineSeries::new(waited.clone(), OURS.stroke_width(2)))?;
        Ok(())
    })
}

fn line(at: (i32, i32), color: RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new([at, (at.0 + 16, at.1)], color.stroke_width(2))
}

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Writes `target/bench/NAME.svg`. Each axis has what it shows, and where it ends.
fn draw(
    name: &str,
    [(x, x_end), (y, y_end)]: [(&str, f64); 2],
    paint: impl FnOnce(&mut Chart<'_>) -> Result<(), Box<dyn Error>>,
) -> anyhow::Result<PathBuf> {
    let path = crate::table::folder()?.join(name).with_extension("svg");
    let mut text = String::new();
    let draw = || -> Result<(), Box<dyn Error>> {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(MARGIN)
            .x_label_area_size(LABELS)
            .y_label_area_size(LABELS)
            .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
        chart.configure_mesh().max_light_lines(0).bold_line_style(GRID).label_style(FONT).x_desc(x).y_desc(y).draw()?;
        paint(&mut chart)?;
        Ok(area.present()?)
    };
    draw().map_err(|error| anyhow!("draw {name}: {error}"))?;
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}
