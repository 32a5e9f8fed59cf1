// Package sqlevents delivers events over a SQL database: a SQLite file, which any number of
// processes of one machine share, or PostgreSQL 13 and newer.
//
//	db, err := sqlite.Open("/var/lib/app.db", sqlite.Config{})
//	bus, err := sqlevents.New(sqlevents.Config{DB: db})
//
// The first call creates the tables, whose names begin with "swarmiji_event". The files in
// internal/sqlconn/migrations/events document their columns.
//
// # Only wanted events are written
//
// A bus with subscriptions has a row that names the wanted types, with a lease. A publisher reads
// these rows at most four times a second, and writes only events of wanted types. So tasks without
// a listener cost no write. [Bus.Subscribe] waits 0.3 s if no listener wanted its types before:
// after that time every publisher has read the new row. Kept events are always written.
//
// A row is a message of up to a hundred events. It is deleted after 10 seconds, or if its events
// are kept, after their Age. A bus that publishes deletes expired rows of all namespaces, a limited
// number at a time.
//
// # Where events are lost
//
//   - At the publisher, if its buffer is full or the database cannot be reached: [Bus.Dropped]
//     counts them. A message whose answer was lost is not sent again. It counts as dropped although
//     it may have arrived.
//   - On the way, without a count, if a listener cannot reach the database for more than 10
//     seconds.
//   - In the full buffer of a listener, the oldest events: events.DropCounter of its subscription
//     counts them.
//   - In a crash of the PostgreSQL server or the machine of the file: events of the last second
//     that are not kept, and later ones until a listener has connected again. Only kept events wait
//     for the disk.
//
// # Kept events
//
// [Config.Retain] keeps events, see [Bus.Replay]. Messages are removed when they are older than
// Age, or if later ones hold Max events. A bus removes the latter after it has written a tenth of
// Max. So some more than Max may be kept.
//
// A subscription of Replay reads the table and remembers its position, so that a lost connection
// loses no event. A reader that is slower than the retention misses removed events, and its
// events.DropCounter counts them.
//
// Messages of a namespace become visible in the order of their numbers. On PostgreSQL each insert
// holds an advisory lock of the namespace while it takes its number. It is one statement, so a
// frozen publisher holds no lock.
//
// # Notifications
//
// PostgreSQL's NOTIFY, or a change of the file, tells readers that there are new rows. They also
// read at intervals, so that a lost notification only delays events.
package sqlevents
