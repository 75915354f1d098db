package publish

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// maxLine is the longest line of a message file, in bytes: a payload of the default limit in base64, plus everything
// else.
const maxLine = 4 << 20

// maxBatchBytes ends a batch before it has its number of lines, so that long lines do not exhaust memory.
const maxBatchBytes = 8 << 20

// lineLoader publishes messages, one per line, in batches of one transaction each.
type lineLoader struct {
	program *program.Program
	options *publishOptions
	publish func(ctx context.Context, msgs []*postrider.Message) ([]string, error)
	rejects io.Writer // nil: stop at a bad line
	bar     *program.Progress
	began   time.Time

	batch               []line
	batchBytes          int
	published, rejected int64
	// settled is the last line whose outcome is known.
	settled int
	// unread: nobody reads the IDs any more.
	unread bool
}

// line is one line of the file.
type line struct {
	number  int
	text    []byte
	message *postrider.Message
}

// run reads to the end, or to the first error that must not be skipped.
func (l *lineLoader) run(ctx context.Context, in io.Reader) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		text, err := readLine(r)
		if errors.Is(err, io.EOF) {
			if l.options.fromLine > n { // n is what follows the last line
				return program.Usagef("--from-line %d is past the end: there are %s", l.options.fromLine, output.Plural(n-1, "line"))
			}
			return l.flush(ctx)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		l.bar.Add(len(text) + 1)
		if n < l.options.fromLine || len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if err := l.take(ctx, line{number: n, text: text}); err != nil {
			return err
		}
	}
}

// readLine reads a line of up to maxLine bytes, without the line ending.
func readLine(r *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := r.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text) > maxLine:
			return nil, fmt.Errorf("longer than %d bytes; is this a file of one JSON object per line?", maxLine)
		case err == nil:
			return text[:len(text)-1], nil
		case errors.Is(err, io.EOF) && len(text) > 0:
			return text, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// take decodes a line and publishes the batch when it is full.
func (l *lineLoader) take(ctx context.Context, a line) error {
	m, err := decodeMessage(a.text)
	if err == nil && len(m.Payload) > 0 {
		err = checkJSON(m)
	}
	if err != nil {
		return l.reject(a, err)
	}
	a.message = m
	l.batch = append(l.batch, a)
	l.batchBytes += len(a.text)
	if len(l.batch) < l.options.batch && l.batchBytes < maxBatchBytes {
		return nil
	}
	return l.flush(ctx)
}

// decodeMessage reads a message in its JSON form; an unknown field is an error, because its value would be lost.
func decodeMessage(text []byte) (*postrider.Message, error) {
	m := new(postrider.Message)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("not a message in JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value; write one message per line")
	}
	return m, nil
}

// reject stops at a bad line, or writes the line to the rejects.
func (l *lineLoader) reject(a line, cause error) error {
	if l.rejects == nil {
		return fmt.Errorf("line %d: %w", a.number, cause)
	}
	if _, err := l.rejects.Write(append(a.text, '\n')); err != nil {
		return fmt.Errorf("line %d: write to the rejects: %w", a.number, err)
	}
	l.rejected++
	fmt.Fprintf(l.program.Stderr, "postrider: line %d rejected: %s\n", a.number, output.Printable(cause.Error()))
	return nil
}

// flush publishes the batch. Invalid messages are rejected and the others published without them.
func (l *lineLoader) flush(ctx context.Context) error {
	for len(l.batch) > 0 {
		msgs := make([]*postrider.Message, len(l.batch))
		for i, a := range l.batch {
			msgs[i] = a.message
		}
		ids, err := l.publish(ctx, msgs)
		if err == nil {
			return l.done(ids)
		}
		bad, ok := errors.AsType[*postrider.ValidationError](err)
		if !ok {
			return fmt.Errorf("lines %d to %d: %w", l.batch[0].number, l.batch[len(l.batch)-1].number, err)
		}
		if err := l.rejectInvalid(bad); err != nil {
			return err
		}
	}
	return nil
}

// rejectInvalid removes invalid messages from the batch.
func (l *lineLoader) rejectInvalid(bad *postrider.ValidationError) error {
	faults := map[int][]error{}
	for _, f := range bad.Faults {
		faults[f.Index] = append(faults[f.Index], errors.New(f.String()))
	}
	var good []line
	for i, a := range l.batch {
		if len(faults[i]) == 0 {
			good = append(good, a)
			continue
		}
		if err := l.reject(a, errors.Join(faults[i]...)); err != nil {
			return err
		}
	}
	if len(good) == len(l.batch) {
		return bad // not an error of a message: that of the source
	}
	l.batch = good
	return nil
}

func (l *lineLoader) done(ids []string) error {
	l.settled = l.batch[len(l.batch)-1].number
	l.published += int64(len(l.batch))
	l.batch, l.batchBytes = nil, 0
	if l.options.quiet || l.unread {
		return nil
	}
	for _, id := range ids {
		_, err := fmt.Fprintln(l.program.Stdout, id)
		if l.unread = errors.Is(err, syscall.EPIPE); l.unread {
			fmt.Fprintln(l.program.Stderr, "postrider: nobody reads the IDs any more; publishing goes on without printing them")
			return nil
		}
		if err != nil {
			return fmt.Errorf("write the IDs: %w", err)
		}
	}
	return nil
}

// conclude prints a summary to standard error and returns the error with the exit code.
func (l *lineLoader) conclude(err error) error {
	summary := fmt.Sprintf("published %s in %s", output.Plural(l.published, "message"), output.Ago(time.Since(l.began)))
	if l.rejected > 0 {
		summary += fmt.Sprintf(", rejected %s to %s", output.Plural(l.rejected, "line"), l.options.rejects)
	}
	if usage, ok := errors.AsType[*program.ExitError](err); ok { // nothing was done
		return usage
	}
	if err != nil {
		next := l.options.fromLine
		if l.settled > 0 {
			next = l.settled + 1
		}
		return fmt.Errorf("%w\n%s; go on with --from-line %d", err, summary, next)
	}
	fmt.Fprintln(l.program.Stderr, "postrider: "+summary)
	if l.rejected > 0 {
		return &program.ExitError{Code: program.ExitPartly}
	}
	return nil
}
