// Package dashboard shows a running system in the browser, and serves inspect.API over HTTP.
//
//	d, err := dashboard.New(dashboard.Config{API: api, Users: users})
//	mux.Handle("/swarmiji/", http.StripPrefix("/swarmiji", d))
//
// A [Dashboard] is an http.Handler that works below any prefix: all links are relative. The pages
// are at the root, and the methods of package httpinspect at /api/v1. It is a client of
// inspect.API alone, so the API may also be one of another process.
//
// # Permissions
//
// A caller is identified by Config.Identify, a trusted proxy, a token, or a name and a password.
// It has one [Role]. Without any of these the dashboard answers this machine only: requests that
// came to a loopback address. Config.Authorize may refuse single changes, and Config.ReadOnly
// refuses all.
//
// There are no cookies and no sessions. A page of another web site cannot call it: writes are
// checked by http.CrossOriginProtection, the Host header must be known, and no other site may
// frame it.
package dashboard
