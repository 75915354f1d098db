package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Baseline is the ratios of an earlier run, by "suite/row of other row". Unlike rates, ratios can be compared between
// machines.
type Baseline map[string]float64

// Ratios returns the report's ratios.
func (r *Report) Ratios() Baseline {
	ratios := make(Baseline)
	for _, s := range r.Suites {
		for _, row := range s.Rows {
			for _, other := range []string{row.Limit, row.Peer} {
				if ratio, ok := s.Ratio(row, other); ok {
					ratios[baselineKey(s, row, other)] = ratio.Median
				}
			}
		}
	}
	return ratios
}

func baselineKey(s *Suite, row *Row, other string) string {
	return fmt.Sprintf("%s/%s of %s", s.Name, row.Name, other)
}

// ReadBaseline parses a baseline file.
func ReadBaseline(text []byte) (Baseline, error) {
	var b Baseline
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("read the baseline: %w; write a new one with -write-baseline", err)
	}
	return b, nil
}

// Regressions are the ratios that are worse than the baseline's by more than tolerance (0.15 is 15%), one line each. Only
// ratios present in both are compared; compared is their number.
func (r *Report) Regressions(b Baseline, tolerance float64) (worse []string, compared int) {
	lower := make(map[string]bool)
	for _, s := range r.Suites {
		lower[s.Name] = s.Lower
	}
	now := r.Ratios()
	for _, key := range slices.Sorted(maps.Keys(now)) {
		before, ok := b[key]
		if !ok || before <= 0 {
			continue
		}
		compared++
		suite, _, _ := strings.Cut(key, "/")
		change := now[key]/before - 1
		if lower[suite] {
			change = -change
		}
		if change < -tolerance {
			worse = append(worse, fmt.Sprintf("%s: %.3g, was %.3g (worse by %.0f%%)", key, now[key], before, -100*change))
		}
	}
	return worse, compared
}
