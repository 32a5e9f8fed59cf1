package netconn_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/netconn"
)

var errCut = errors.New("cut")

// pair returns a running Socket and its other end, which reads nothing by itself.
func pair(c netconn.SocketConfig) (s *netconn.Socket, far net.Conn) {
	near, far := net.Pipe()
	s = netconn.NewSocket(near, c)
	go s.Run()
	return s, far
}

func write(t *testing.T, s *netconn.Socket, text string) {
	t.Helper()
	if n, err := s.Write([]byte(text)); err != nil || n != len(text) {
		t.Errorf("Write took %d of %d bytes: %v", n, len(text), err)
	}
}

func TestSocketWritesInOrderWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		s, far := pair(netconn.SocketConfig{Room: 4, Keep: 4, OnEnd: func(*netconn.Socket) { ended++ }})
		want := "one, two and three"
		write(t, s, want[:3])
		write(t, s, want[3:8])
		write(t, s, want[8:])
		if s.Taken() != int64(len(want)) {
			t.Errorf("took %d bytes, want %d", s.Taken(), len(want))
		}
		_ = s.Close()
		if !s.Over() || s.Failed() || s.Err() != nil {
			t.Error("after Close it takes nothing, and has not failed while it still writes")
		}
		if _, err := s.Write(nil); !errors.Is(err, netconn.ErrNotWritten) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write after Close: %v", err)
		}
		if got, err := io.ReadAll(far); err != nil || string(got) != want {
			t.Errorf("read %q, %v, want %q: what was written before Close leaves", got, err, want)
		}
		<-s.Flushed()
		s.Fail(errCut)
		if !errors.Is(s.Err(), net.ErrClosed) || ended != 1 {
			t.Errorf("ended %d times, with %v; want once, with the first reason", ended, s.Err())
		}
	})
}

func TestSocketCloseDoesNotLingerForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := pair(netconn.SocketConfig{})
		write(t, s, "nobody reads this")
		begun := time.Now()
		_ = s.Close()
		<-s.Flushed()
		if d := time.Since(begun); d != netconn.Linger {
			t.Errorf("ended after %v, want %v", d, netconn.Linger)
		}
	})
}

func TestWaitRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, far := pair(netconn.SocketConfig{Room: 4, Keep: 4})
		if err := s.WaitRoom(t.Context(), nil); err != nil {
			t.Errorf("an empty buffer has room: %v", err)
		}
		write(t, s, "12345")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.WaitRoom(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a full buffer without an end of patience: %v, want ctx's error", err)
		}
		time.AfterFunc(time.Second, func() { _, _ = io.ReadFull(far, make([]byte, 5)) })
		if err := s.WaitRoom(t.Context(), nil); err != nil {
			t.Errorf("after the other end has read: %v", err)
		}
		write(t, s, "12345")
		time.AfterFunc(time.Second, func() { s.Stop(errCut) })
		if err := s.WaitRoom(t.Context(), nil); !errors.Is(err, errCut) {
			t.Errorf("after a failure: %v, want its reason", err)
		}
		s.Fail(errCut)
		<-s.Flushed()
	})
}

func TestStalledServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := pair(netconn.SocketConfig{Room: 4, Stall: time.Minute})
		write(t, s, "12345")
		begun := time.Now()
		blocked := func() bool { return time.Since(begun) < 150*time.Second }
		if err := s.WaitRoom(t.Context(), blocked); !errors.Is(err, netconn.ErrStalled) || time.Since(begun) != 3*time.Minute {
			t.Errorf("after %v: %v; want ErrStalled after 3 min, the first time that the server is not blocked", time.Since(begun), err)
		}
		<-s.Flushed()
	})
}

func TestWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w netconn.Watchers
		var heard, slow []broker.ConnState
		stop := w.Add(func(s broker.ConnState, _ error) { heard = append(heard, s) }, broker.Disconnected, nil)
		w.Add(func(s broker.ConnState, _ error) { time.Sleep(time.Hour); slow = append(slow, s) }, broker.Disconnected, nil)
		w.Notify(broker.Connected, nil)
		w.Notify(broker.Blocked, errCut)
		synctest.Wait()
		if want := []broker.ConnState{broker.Disconnected, broker.Connected, broker.Blocked}; !slices.Equal(heard, want) {
			t.Errorf("heard %v, want %v, whatever others do meanwhile", heard, want)
		}
		stop()
		stop()
		w.Close()
		w.Notify(broker.Disconnected, nil)
		late := 0
		w.Add(func(broker.ConnState, error) { late++ }, broker.Disconnected, nil)
		w.Notify(broker.Connected, nil)
		synctest.Wait()
		if len(heard) != 3 || late != 1 || !w.Any() {
			t.Errorf("heard %v after stop; one that comes after Close heard %d states, want 1", heard, late)
		}
		time.Sleep(2*time.Hour + time.Minute)
		w.Drop()
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		if len(slow) != 3 || w.Any() {
			t.Errorf("the slow one heard %v, want 3: two before Drop, and the call under way", slow)
		}
	})
}
