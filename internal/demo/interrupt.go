package demo

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// ErrInterrupted is how a run ends without a verdict: interrupted on its way up, or twice.
var ErrInterrupted = errors.New("interrupted")

// interrupts tells the first wish to end, which is answered with a verdict, from the second, which ends at once.
type interrupts struct {
	first  chan struct{}
	now    context.Context // ended by the second
	cancel context.CancelCauseFunc
	stop   func()
	ended  chan struct{}
}

// catchInterrupts listens to SIGINT, SIGTERM and SIGHUP until close; a ctx that ends counts as the first wish.
func catchInterrupts(ctx context.Context) *interrupts {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	i := followInterrupts(ctx, signals)
	stop := i.stop
	i.stop = func() { signal.Stop(signals); stop() }
	return i
}

// followInterrupts starts the goroutine that counts; it ends in close.
func followInterrupts(ctx context.Context, signals <-chan os.Signal) *interrupts {
	i := &interrupts{first: make(chan struct{}), ended: make(chan struct{})}
	i.now, i.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	quit := make(chan struct{})
	i.stop = func() { close(quit) }
	go func() {
		defer close(i.ended)
		done := ctx.Done()
		for wishes := 0; ; {
			select {
			case <-quit:
				return
			case <-signals:
			case <-done:
				done = nil
			}
			switch wishes++; wishes {
			case 1:
				close(i.first)
			case 2:
				i.cancel(ErrInterrupted)
			}
		}
	}()
	return i
}

func (i *interrupts) close() {
	i.stop()
	<-i.ended
	i.cancel(ErrInterrupted)
}

// onTheWayUp is a context that the first wish ends already: there is nothing to judge yet.
func (i *interrupts) onTheWayUp() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(i.now)
	done := make(chan struct{})
	go func() { // ends with the way up
		select {
		case <-i.first:
			cancel(ErrInterrupted)
		case <-done:
		}
	}()
	return ctx, func() { close(done); cancel(nil) }
}
