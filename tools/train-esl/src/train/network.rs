//! The network during training: the rows of features are summed, split into positive and negative parts, and
//! multiplied by weights.

use super::sample::Sample;
use ken_esl::math::{mix, sigmoid};
use ken_esl::table::{INPUTS, POLARITY, ROWS, SCORES, WIDTH};

/// The number of scores including padding, so that loops over them use complete vectors.
const PADDED: usize = 40;

/// The initial learning rate of AdaGrad.
const RATE: f32 = 0.05;
/// The fraction of the initial rate to which the rate decreases linearly.
const LAST_RATE: f32 = 0.02;

pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) epochs: usize,
    /// The share of features that are dropped in each step.
    pub(crate) drop_features: f32,
    /// The share of inputs that are dropped in each step.
    pub(crate) drop_inputs: f32,
}

/// Parameters and the sums of their squared gradients.
struct Parameters {
    values: Vec<f32>,
    squares: Vec<f32>,
}

impl Parameters {
    fn new(count: usize, mut value: impl FnMut() -> f32) -> Parameters {
        Parameters { values: (0..count).map(|_| value()).collect(), squares: vec![1e-8; count] }
    }

    /// Does one step of AdaGrad for the parameters from `at` on.
    fn step(&mut self, at: usize, gradient: &[f32], rate: f32) {
        let end = at + gradient.len();
        let (Some(values), Some(squares)) = (self.values.get_mut(at..end), self.squares.get_mut(at..end)) else {
            return;
        };
        for ((value, square), gradient) in values.iter_mut().zip(squares).zip(gradient) {
            *square += gradient * gradient;
            *value -= rate * gradient / square.sqrt();
        }
    }

    fn row(&self, at: usize, width: usize) -> &[f32] {
        self.values.get(at * width..(at + 1) * width).unwrap_or_default()
    }
}

pub(crate) struct Network {
    rows: Vec<f32>,
    pub(crate) hidden: Vec<f32>,
    head: Vec<f32>,
    pub(crate) biases: Vec<f32>,
}

impl Network {
    pub(crate) fn train<'a>(samples: impl Iterator<Item = &'a Sample>, settings: &Settings) -> Network {
        let samples: Vec<&Sample> = samples.collect();
        let mut learner = Learner::new(settings);
        let mut order: Vec<usize> = (0..samples.len()).collect();
        let steps = (settings.epochs * samples.len()).max(1) as f32;
        let mut step = 0.0;
        for _ in 0..settings.epochs {
            learner.chance.shuffle(&mut order);
            for sample in order.iter().filter_map(|at| samples.get(*at)) {
                learner.learn(sample, RATE * (1.0 - step / steps).max(LAST_RATE));
                step += 1.0;
            }
        }
        learner.finish()
    }

    pub(crate) fn number(&self, row: usize, dimension: usize) -> f32 {
        self.rows.get(row * WIDTH + dimension).copied().unwrap_or(0.0)
    }

    pub(crate) fn weight(&self, input: usize, score: usize) -> f32 {
        self.head.get(input * PADDED + score).copied().unwrap_or(0.0)
    }

    /// Returns the prediction for a sample, in the units of the targets.
    pub(crate) fn probabilities(&self, sample: &Sample) -> [f32; SCORES] {
        let sums = sums(&self.rows, &sample.rows);
        let mut inputs = [0.0; INPUTS];
        rectify(&sums, sample.rows.len(), &self.hidden, &mut inputs);
        let scores = output_scores(&inputs, &self.head, &self.biases);
        let mut probabilities = [0.0; SCORES];
        for (at, (to, score)) in probabilities.iter_mut().zip(scores).enumerate() {
            *to = if at == POLARITY { score } else { sigmoid(score) };
        }
        probabilities
    }
}

struct Learner<'a> {
    settings: &'a Settings,
    chance: Random,
    rows: Parameters,
    hidden: Parameters,
    head: Parameters,
    biases: Parameters,
    seen: Vec<u32>,
}

impl Learner<'_> {
    fn new(settings: &Settings) -> Learner<'_> {
        let mut chance = Random(settings.seed);
        Learner {
            settings,
            rows: Parameters::new(ROWS * WIDTH, || chance.normal() * 0.1),
            hidden: Parameters::new(WIDTH, || 0.0),
            head: Parameters::new(INPUTS * PADDED, || chance.normal() * 0.3 / (WIDTH as f32).sqrt()),
            biases: Parameters::new(PADDED, || -2.0),
            chance,
            seen: Vec::new(),
        }
    }

    fn finish(self) -> Network {
        Network {
            rows: self.rows.values,
            hidden: self.hidden.values,
            head: self.head.values,
            biases: self.biases.values,
        }
    }

    fn learn(&mut self, sample: &Sample, rate: f32) {
        self.select_features(sample);
        if self.seen.is_empty() {
            return;
        }
        let mut inputs = [0.0; INPUTS];
        let sums = sums(&self.rows.values, &self.seen);
        rectify(&sums, self.seen.len(), &self.hidden.values, &mut inputs);
        let keep = self.drop_inputs(&mut inputs);
        let scores = output_scores(&inputs, &self.head.values, &self.biases.values);
        let errors = errors(&scores, sample);
        let gradient = self.learn_head(&inputs, &errors, rate);
        self.learn_rows(&inputs, &gradient, keep, rate);
    }

    fn select_features(&mut self, sample: &Sample) {
        self.seen.clear();
        for row in &sample.rows {
            if self.chance.part() >= self.settings.drop_features {
                self.seen.push(*row);
            }
        }
    }

    /// Drops some inputs and multiplies the others by the factor that it returns.
    fn drop_inputs(&mut self, inputs: &mut [f32; INPUTS]) -> f32 {
        let keep = 1.0 / (1.0 - self.settings.drop_inputs);
        let (above, below) = inputs.split_at_mut(WIDTH);
        for (above, below) in above.iter_mut().zip(below) {
            let factor = if self.chance.part() < self.settings.drop_inputs { 0.0 } else { keep };
            *above *= factor;
            *below *= factor;
        }
        keep
    }

    /// Updates the head. Returns the gradient at its inputs.
    fn learn_head(&mut self, inputs: &[f32; INPUTS], errors: &[f32; PADDED], rate: f32) -> [f32; INPUTS] {
        let mut gradient = [0.0; INPUTS];
        self.biases.step(0, errors, rate);
        for (at, (to, input)) in gradient.iter_mut().zip(inputs).enumerate() {
            if *input == 0.0 {
                continue;
            }
            *to = dot_product(self.head.row(at, PADDED), errors);
            let step = errors.map(|error| error * input);
            self.head.step(at * PADDED, &step, rate);
        }
        gradient
    }

    fn learn_rows(&mut self, inputs: &[f32; INPUTS], gradient: &[f32; INPUTS], keep: f32, rate: f32) {
        let mut sums = [0.0; WIDTH];
        for (at, to) in sums.iter_mut().enumerate() {
            // An input of the second half is the negated sum.
            *to = keep
                * if inputs[at] > 0.0 {
                    gradient[at]
                } else if inputs[at + WIDTH] > 0.0 {
                    -gradient[at + WIDTH]
                } else {
                    0.0
                };
        }
        self.hidden.step(0, &sums, rate);
        let scale = 1.0 / (self.seen.len() as f32).sqrt();
        let step = sums.map(|sum| sum * scale);
        for row in &self.seen {
            self.rows.step(*row as usize * WIDTH, &step, rate);
        }
    }
}

fn sums(rows: &[f32], seen: &[u32]) -> [f32; WIDTH] {
    let mut sums = [0.0; WIDTH];
    for row in seen {
        let at = *row as usize * WIDTH;
        let row = rows.get(at..at + WIDTH).unwrap_or_default();
        sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
    }
    sums
}

fn rectify(sums: &[f32; WIDTH], count: usize, hidden: &[f32], inputs: &mut [f32; INPUTS]) {
    let scale = 1.0 / (count.max(1) as f32).sqrt();
    let (above, below) = inputs.split_at_mut(WIDTH);
    for (((above, below), sum), bias) in above.iter_mut().zip(below).zip(sums).zip(hidden) {
        let value = sum * scale + bias;
        *above = value.max(0.0);
        *below = (-value).max(0.0);
    }
}

fn output_scores(inputs: &[f32; INPUTS], head: &[f32], biases: &[f32]) -> [f32; PADDED] {
    let mut scores = [0.0; PADDED];
    scores.iter_mut().zip(biases).for_each(|(score, bias)| *score = *bias);
    for (input, weights) in inputs.iter().zip(head.chunks_exact(PADDED)) {
        if *input != 0.0 {
            scores.iter_mut().zip(weights).for_each(|(score, weight)| *score += input * weight);
        }
    }
    scores
}

/// Returns the gradient of the loss at the scores. The loss is squared error for polarity, and cross-entropy for
/// all other scores.
fn errors(scores: &[f32; PADDED], sample: &Sample) -> [f32; PADDED] {
    let mut errors = [0.0; PADDED];
    for (at, (error, score)) in errors.iter_mut().zip(scores).enumerate().take(SCORES) {
        let guess = if at == POLARITY { *score } else { sigmoid(*score) };
        *error = sample.weights[at] * (guess - sample.targets[at]);
    }
    errors
}

/// Returns a dot product. Its eight independent sums let the compiler use vector instructions.
fn dot_product(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum()
}

/// A random number generator that gives the same numbers on every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0, 0xE220_A839_7B1D_CDAF)
    }

    /// Returns a random number from 0 to 1.
    fn part(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Returns an approximately normal random number: the sum of twelve uniform ones.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.part()).sum::<f32>() - 6.0
    }

    pub(super) fn shuffle(&mut self, order: &mut [usize]) {
        for at in (1..order.len()).rev() {
            let other = (self.next() % (at as u64 + 1)) as usize;
            order.swap(at, other);
        }
    }
}
