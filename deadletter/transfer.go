package deadletter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/postrider/postrider/store"
)

// Export writes the dead letters that match the filter, oldest first, as one JSON object per line, each in one write, and
// returns how many it has written. It reads page by page, so it may or may not include changes made meanwhile. Dead letters
// that have no JSON form, or one that Import would not read, are left out; the error names them.
func (s Store) Export(ctx context.Context, w io.Writer, f store.DeadFilter) (n int64, err error) {
	var left []error
	for l, err := range s.ListDead(ctx, f, 0, 0) {
		if err != nil {
			return n, errors.Join(append(left, err)...)
		}
		a := store.ArchivedDead{DeadLetter: l}
		if l.Edits > 0 {
			if a.Before, err = s.ListEdits(ctx, l.Number); err != nil {
				return n, errors.Join(append(left, err)...)
			}
			a.Before = a.Before[:min(len(a.Before), l.Edits)] // without those made since the dead letter was read
		}
		line, err := encodeLine(a)
		if err != nil {
			left = append(left, fmt.Errorf("dead letter %d is left out: %w", l.Number, err))
			continue
		}
		if _, err := w.Write(line); err != nil {
			return n, errors.Join(append(left, fmt.Errorf("export dead letter %d: %w", l.Number, err))...)
		}
		n++
	}
	return n, errors.Join(left...)
}

func encodeLine(a store.ArchivedDead) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(a); err != nil {
		return nil, err
	}
	if line.Len() > maxLine {
		return nil, fmt.Errorf("it takes %d bytes with its edits, a line has up to %d", line.Len(), maxLine)
	}
	return line.Bytes(), nil
}

// maxLine is the maximum length of a line, in bytes.
const maxLine = 256 << 20

// Limits of one import transaction.
const (
	importBatch = 100
	importBytes = 4 << 20
)

// Imported counts what an import did.
type Imported struct {
	// DeadLetters counts the dead letters read, New those that did not exist yet.
	DeadLetters int64 `json:"dead_letters"`
	New         int64 `json:"new"`
}

// Import reads the output of Export and adds the dead letters that do not exist yet, 100 of them or 4 MiB per
// transaction, so that it can be repeated after an error. The error names the line. Lines have up to 256 MiB; empty
// ones are skipped. It calls progress, unless nil, after each transaction.
func (s Store) Import(ctx context.Context, r io.Reader, progress func(Imported)) (Imported, error) {
	return s.importLines(ctx, r, maxLine, progress)
}

func (s Store) importLines(ctx context.Context, r io.Reader, limit int, progress func(Imported)) (Imported, error) {
	var done Imported
	var batch []store.ArchivedDead
	size := 0
	flush := func() error {
		n, err := s.ImportDead(ctx, batch)
		if err != nil {
			return err
		}
		done.DeadLetters, done.New = done.DeadLetters+int64(len(batch)), done.New+int64(n)
		if batch, size = batch[:0], 0; progress != nil {
			progress(done)
		}
		return nil
	}
	in := bufio.NewReaderSize(r, 64<<10)
	for line := 1; ; line++ {
		text, readErr := readLine(in, limit)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return done, fmt.Errorf("line %d: %w", line, readErr)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			a, err := parseLine(text)
			if err != nil {
				return done, fmt.Errorf("line %d: %w", line, err)
			}
			batch, size = append(batch, a), size+len(text)
		}
		last := errors.Is(readErr, io.EOF)
		if len(batch) >= importBatch || size >= importBytes || last && len(batch) > 0 {
			if err := flush(); err != nil {
				return done, fmt.Errorf("import up to line %d: %w", line, err)
			}
		}
		if last {
			return done, nil
		}
	}
}

// readLine reads up to the end of a line, and returns it.
func readLine(in *bufio.Reader, limit int) (text []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(text)+len(part) > limit {
			return nil, fmt.Errorf("longer than %d bytes; is this what postrider dead export wrote, with one JSON object per line?", limit)
		}
		text = append(text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

func parseLine(text []byte) (store.ArchivedDead, error) {
	var a store.ArchivedDead
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, fmt.Errorf("read a dead letter: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return a, fmt.Errorf("there is more after dead letter %d; write one line for each dead letter", a.Number)
	}
	if err := checkImported(a); err != nil {
		return a, fmt.Errorf("dead letter %d: %w", a.Number, err)
	}
	return a, nil
}
