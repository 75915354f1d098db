package scenario

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// disk is a small file system, which a database fills.
type disk struct {
	tb   TB
	dir  string
	stop context.CancelFunc
	done sync.WaitGroup
}

// mount mounts a file system; nil if this user may not.
func mount(tb TB) *disk {
	dir := tb.TempDir()
	if exec.CommandContext(tb.Context(), "mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", dir).Run() != nil {
		return nil
	}
	d := &disk{tb: tb, dir: dir}
	tb.Cleanup(func() {
		d.end()
		if err := exec.Command("umount", dir).Run(); err != nil {
			tb.Error("unmount", dir, err)
		}
	})
	return d
}

func (d *disk) file() string { return filepath.Join(d.dir, "log") }

// fill fills 14 MiB at once, and the rest slowly.
func (d *disk) fill() {
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	d.done.Go(func() {
		f, err := os.Create(d.file())
		if err != nil {
			d.tb.Error(err)
			return
		}
		defer f.Close()
		_, err = f.Write(make([]byte, 14<<20))
		for err == nil && ctx.Err() == nil { // until it is full
			_, err = f.Write(make([]byte, 8<<10))
			sleep(ctx, 500*time.Millisecond)
		}
	})
}

func (d *disk) end() {
	if d.stop != nil {
		d.stop()
	}
	d.done.Wait()
}

// clear removes what can be removed.
func (d *disk) clear() {
	d.end()
	must(d.tb, os.Remove(d.file()))
}
