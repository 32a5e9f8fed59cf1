// Package embedded runs a NATS server with JetStream inside the process and keeps its data in a
// directory. It is the project's durable default without a separate server: tasks, results and
// events outlive the process.
//
//	srv, err := embedded.Open(ctx, "/var/lib/orders", embedded.Options{})
//	...
//	defer srv.Close(ctx)
//	// srv is the InProcess of a natsconnect.Config
//
// It is a separate package because a server adds about 11 MB to a program. A program that connects
// to a server elsewhere does not link it.
//
// # One server per directory
//
// Two servers on one directory would use the same sequence numbers and destroy each other's data.
// So Open locks the directory until Close has returned, or until the process ends in any way. A
// second Open, in this process or another, returns [ErrLocked], and its text says how to join
// instead.
//
// Other processes join a server with [Options].Listen. It accepts connections on a loopback
// address. It writes its address, with a random password, into a file of the directory that only
// its user can read. [Address] reads that file:
//
//	url, err := embedded.Address("/var/lib/orders") // the URLs of a natsconnect.Config
//
// The password changes with each Open.
//
// # Durability
//
//   - The end of the process, also by SIGKILL or a panic, loses no acknowledged message. The
//     operating system holds them.
//   - A loss of power or a crash of the operating system loses the messages acknowledged within the
//     last [Options].SyncInterval. With [Options].SyncAlways it loses none, at the price of a disk
//     sync for each write.
//   - On a full disk, writes are refused. The stored data stays.
//
// If a newer server wrote the directory, or a stream's definition is damaged, Open returns
// [ErrStore] and changes nothing. The server itself would continue without these streams, as if
// they had been empty. Open does not check the messages inside a stream. The server reports damage
// that it finds to [Options].Logger.
//
// # Goroutines
//
// A running server has some tens of goroutines. All of them have ended when Close returns nil. A
// connected client keeps its own goroutines until it is closed; close the broker, the store and the
// bus first.
package embedded
