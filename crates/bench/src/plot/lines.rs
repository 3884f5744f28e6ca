//! Lines over a logarithmic axis of one number, one for each system.

use super::axis::{Axis, shown};
use super::{Anchor, BOTTOM, Drawing, GRID, HEIGHT, INK, LEFT, RIGHT, TOP, WIDTH, colour};

pub struct Lines {
    pub title: String,
    pub x: String,
    pub y: String,
    pub series: Vec<Series>,
}

pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The value is at least this: it was not waited for.
    pub more: bool,
}

/// Of the points, along one axis.
type Values = std::vec::IntoIter<f64>;

impl Lines {
    pub fn to_svg(&self) -> String {
        self.draw(Axis::log, true)
    }

    /// Along equal steps from zero; without a mark for each of many points.
    pub fn to_svg_over_time(&self) -> String {
        self.draw(Axis::linear, false)
    }

    fn draw(&self, axis: fn(Values) -> Axis, marks: bool) -> String {
        let values = |of: fn(&Point) -> f64| -> Values {
            self.series
                .iter()
                .flat_map(|series| &series.points)
                .map(of)
                .collect::<Vec<_>>()
                .into_iter()
        };
        let x = axis(values(|point| point.x));
        let y = axis(values(|point| point.y));
        let place = |point: &Point| {
            let across = LEFT + x.place(point.x) * (WIDTH - LEFT - RIGHT);
            (across, HEIGHT - BOTTOM - y.place(point.y) * (HEIGHT - TOP - BOTTOM))
        };
        let mut drawing = Drawing::new(&self.title);
        self.axes(&mut drawing, &x, &y);
        let places = drawing.legend(self.series.iter().map(|series| series.name.as_str()));
        for (number, (series, at)) in self.series.iter().zip(places).enumerate() {
            let places: Vec<_> = series.points.iter().map(place).collect();
            let path: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            drawing.element(&format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
                path.join(" "),
                colour(number)
            ));
            mark(&mut drawing, number, at, false);
            for (point, at) in series.points.iter().zip(places).filter(|_| marks) {
                mark(&mut drawing, number, at, point.more);
            }
        }
        drawing.finish()
    }

    fn axes(&self, drawing: &mut Drawing, x: &Axis, y: &Axis) {
        let (low, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in y.ticks() {
            let at = low - y.place(tick) * (low - TOP);
            drawing.line((LEFT, at), (end, at), GRID);
            drawing.label((LEFT - 8.0, at + 4.0), Anchor::End, &shown(tick));
        }
        for tick in x.ticks() {
            let at = LEFT + x.place(tick) * (end - LEFT);
            drawing.line((at, TOP), (at, low), GRID);
            drawing.label((at, low + 18.0), Anchor::Middle, &shown(tick));
        }
        drawing.line((LEFT, low), (end, low), INK);
        drawing.line((LEFT, TOP), (LEFT, low), INK);
        drawing.label(((LEFT + end) / 2.0, HEIGHT - 18.0), Anchor::Middle, &self.x);
        drawing.upright(&self.y);
    }
}

/// A shape for each line; an arrow up where the value is more than shown.
fn mark(drawing: &mut Drawing, number: usize, (x, y): (f64, f64), more: bool) {
    let colour = colour(number);
    let polygon = |corners: &[(f64, f64)]| {
        let corners: Vec<_> =
            corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        format!("<polygon points=\"{}\" fill=\"{colour}\"/>", corners.join(" "))
    };
    let shape = match number % 4 {
        _ if more => polygon(&[
            (0.0, -14.0),
            (7.0, -4.0),
            (2.0, -4.0),
            (2.0, 5.0),
            (-2.0, 5.0),
            (-2.0, -4.0),
            (-7.0, -4.0),
        ]),
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>"),
        1 => polygon(&[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)]),
        2 => polygon(&[(0.0, -5.5), (5.0, 4.0), (-5.0, 4.0)]),
        _ => polygon(&[(0.0, -6.0), (6.0, 0.0), (0.0, 6.0), (-6.0, 0.0)]),
    };
    drawing.element(&shape);
}
