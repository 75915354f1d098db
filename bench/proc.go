package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Information about processes and the machine from Linux (proc(5)).

// clockTick is the unit of processor times in /proc: 10 ms on every Linux that Go supports.
const clockTick = 10 * time.Millisecond

// ownCPU is the processor time of this process so far.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// treeCPU is the processor time so far of a process and its children: running ones, and ended ones that it has waited
// for. PostgreSQL is such a tree.
func treeCPU(pid int) (time.Duration, error) {
	root, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	total := root.own + root.waitedFor
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range all {
		child, _ := strconv.Atoi(filepath.Base(dir))
		if s, err := readStat(child); err == nil && s.parent == pid { // one that ends meanwhile is missing in this reading
			total += s.own + s.waitedFor
		}
	}
	return total, nil
}

// stat is the part of /proc/<pid>/stat that is needed.
type stat struct {
	parent         int
	own, waitedFor time.Duration
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(text)
}

// parseStat parses a line such as "42 (name) S 1 …"; the name may contain spaces and parentheses.
func parseStat(text []byte) (stat, error) {
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("/proc/<pid>/stat has %d fields after the name, not 15", len(fields))
	}
	var n [5]int64
	for i, at := range []int{1, 11, 12, 13, 14} { // ppid, utime, stime, cutime, cstime
		var err error
		if n[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return stat{}, fmt.Errorf("/proc/<pid>/stat: %w", err)
		}
	}
	return stat{parent: int(n[0]), own: time.Duration(n[1]+n[2]) * clockTick, waitedFor: time.Duration(n[3]+n[4]) * clockTick}, nil
}

// peakRSS is the largest resident set that a process has had, in MiB.
func peakRSS(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseFloat(field(string(text), "VmHWM:"), 64)
	return kib / 1024, err
}

// resetPeak makes peakRSS of this process begin from what it needs now.
func resetPeak() error {
	debug.FreeOSMemory()
	return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// field returns the first word after a name at the beginning of a line, "" if there is none.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok && len(strings.Fields(rest)) > 0 {
			return strings.Fields(rest)[0]
		}
	}
	return ""
}

// processor is the model of the processor.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func memoryMiB() int {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	kib, _ := strconv.Atoi(field(string(text), "MemTotal:"))
	return kib / 1024
}

// moduleVersions are the versions of the libraries that affect the figures, as linked into this program.
func moduleVersions() map[string]string {
	versions := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/jackc/pgx/v5", "github.com/nats-io/nats.go", "github.com/riverqueue/river", "github.com/ThreeDotsLabs/watermill",
			"github.com/ThreeDotsLabs/watermill-sql/v4", "modernc.org/sqlite":
			versions[m.Path] = m.Version
		}
	}
	return versions
}
