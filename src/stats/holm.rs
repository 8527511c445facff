//! Many tests at once.

/// Holm's step-down adjustment: compared with a level `a`, the adjusted p-values keep the probability of even one false
/// alarm at `a`, whatever the tests have to do with each other. Holm, "A simple sequentially rejective multiple test
/// procedure", Scandinavian Journal of Statistics 6 (1979) 65-70. The order of the input is kept.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let count = p_values.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut adjusted = vec![1.0; count];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max((p_values[index] * (count - rank) as f64).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}
