package web

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/doctor"
)

// healthData is what the page of the checks shows.
type healthData struct {
	Title    string
	Report   doctor.Report
	Findings []doctor.Finding
	// Unknown are the checks that could not be made, Passed those without a finding.
	Unknown, Passed []doctor.Result
}

func (h *Handler) health(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/health", "Health", "health", func(out *page) error {
		report, err := h.service.Doctor(r.Context(), p, nil)
		if err != nil {
			return err
		}
		d := healthData{Title: healthTitle(report), Report: report, Findings: report.Findings()}
		for _, result := range report.Results {
			switch result.Outcome {
			case doctor.CouldNotCheck:
				d.Unknown = append(d.Unknown, result)
			case doctor.Passed:
				d.Passed = append(d.Passed, result)
			}
		}
		out.Refresh, out.Data = refreshEvery, d
		return nil
	})
}

// healthTitle answers whether something is wrong.
func healthTitle(r doctor.Report) string {
	var parts []string
	for _, level := range []doctor.Level{doctor.Fault, doctor.Warning} {
		n := 0
		for _, f := range r.Findings() {
			if f.Level == level {
				n++
			}
		}
		switch n {
		case 0:
		case 1:
			parts = append(parts, "1 "+string(level))
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", n, level))
		}
	}
	checked := len(r.Results) - r.Count(doctor.CouldNotCheck)
	switch {
	case len(parts) > 0:
		return strings.Join(parts, " and ")
	case checked == 0:
		return "Nothing could be checked"
	case checked == 1:
		return "No problems found in 1 check"
	}
	return fmt.Sprintf("No problems found in %d checks", checked)
}

// levelMark is the icon of a finding.
func levelMark(l doctor.Level) mark {
	if l == doctor.Fault {
		return mark{"bad", "octagon", "Fault"}
	}
	return mark{"warn", "triangle", "Warning"}
}

// splitNames splits a list at its commas.
func splitNames(text string) (out []string) {
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}
