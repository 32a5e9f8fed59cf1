// Package embedded runs a NATS server with JetStream inside the process and keeps its data in a directory. It is the
// embedded durable default of the project: tasks, results and events that outlive the process, without a server to install.
//
//	srv, err := embedded.Open(ctx, "/var/lib/orders", embedded.Options{})
//	...
//	defer srv.Close(ctx)
//	// srv is the InProcess of a natsconnect.Config
//
// It is a package of its own because a server adds some 11 MB to a program; who speaks to a server elsewhere links none.
//
// # One server for a directory
//
// Two servers on one directory would hand out the same sequence numbers and destroy each other's data. Open therefore takes a
// lock on the directory and holds it until Close has returned, or until the process ends in whatever way. A second Open, in
// this process or another, is [ErrLocked], and its text says how to join instead.
//
// Other processes join a server with [Options].Listen: it takes connections on a loopback address, and writes its address with
// a password that it made up into a file of the directory that only its user can read. [Address] reads that file:
//
//	url, err := embedded.Address("/var/lib/orders") // the URLs of a natsconnect.Config
//
// The password is another one after each Open.
//
// # What survives
//
//   - The end of the process, also by SIGKILL or a panic: every message that was acknowledged. The operating system holds it.
//   - A loss of power or a crash of the operating system: what was acknowledged up to [Options].SyncInterval before it. With
//     [Options].SyncAlways every acknowledged message, at the price of a trip to the disk for each write.
//   - A full disk: writes are refused from then on, and what is there stays.
//
// A directory that a newer server wrote, or in which a stream's definition is damaged, is [ErrStore] and is left as it is: the
// server by itself would go on without these streams, as if nothing had ever been in them. Damage inside a stream's messages is
// not looked for; the server reports what it comes across to [Options].Logger.
//
// # Goroutines
//
// A running server has some tens of goroutines. None is left when Close has returned nil. A client that is connected keeps its
// own until it is closed; close the broker, the store and the bus first.
package embedded
