package eventstest

import (
	"io"
	"net"
	"time"
)

// trips is the number of measured round trips.
const trips = 2000

// quick expects that each of n calls of Publish, which together took took, needed less than five
// round trips over the loopback interface. A Publish that waits for a server needs many. A busy
// machine slows down both.
func (w *world) quick(took time.Duration, n int) {
	w.Helper()
	trip := w.roundTrip()
	if each := took / time.Duration(n); each > 5*trip {
		w.Errorf("Publish took %v each, a round trip over the loopback interface takes %v", each, trip)
	}
}

// roundTrip returns the mean time to send one byte and receive it back.
func (w *world) roundTrip() time.Duration {
	w.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(w.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn) // until the other end closes
		_ = conn.Close()
	}()
	defer func() {
		_ = l.Close()
		<-echoed
	}()
	var d net.Dialer
	conn, err := d.DialContext(w.Context(), "tcp", l.Addr().String())
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	began := time.Now()
	var b [1]byte
	for range trips {
		if _, err := conn.Write(b[:]); err != nil {
			w.Fatal(err)
		}
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			w.Fatal(err)
		}
	}
	return time.Since(began) / trips
}
