// Package admin is the broker's HTTP listener for people and machines: health, metrics, profiles, and the REST verbs for
// tenants, namespaces, streams and subscriptions.
//
// It owns the listener and the shape of the JSON. It leaves the catalog to replicate, the reasons behind /ready and the
// metrics to whoever starts it. Nothing on the data path passes here.
//
//	GET /                      what is here
//	GET /live                  200 while the process serves HTTP, draining or not
//	GET /ready                 200 or 503, JSON {ready, reasons, warnings}
//	GET /metrics               Prometheus text
//	GET /debug/pprof/          profiles
//	/v1/tenants[/T]            GET, POST, DELETE
//	/v1/tenants/T/quota        GET, PUT, DELETE; kept in memory, until the broker ends
//	/v1/tenants/T/namespaces[/N]                GET, POST, DELETE
//	/v1/tenants/T/namespaces/N/streams[/S]      GET, POST, PATCH, DELETE
//	/v1/tenants/T/namespaces/N[/streams/S]/subscriptions      GET; dropping=true for those that lost records
//
// Lists are {items, next_cursor?} and take limit and cursor. A POST answers 201 for what it made and 200 for what
// existed just so; DELETE answers 204. Errors are {code, message}: 400 invalid_request, 403 forbidden, 404 not_found, 405
// method_not_allowed, 409 conflict, 413 too_large, 503 busy.
//
// # Threads
//
// One goroutine for each connection, by net/http. Handlers call the catalog, which posts to the loops; they hold no
// lock and keep nothing.
//
// # Limits
//
// 64 connections, further ones wait in the kernel's queue; 16 KiB of headers; 64 KiB of body, read within 10 s; 1,000 items
// on a page, 10,000 where limit asks for them. A profile or trace runs as long as asked, at most 60 s. Idle connections are closed after 60 s.
//
// # Who may come
//
// There is no authentication, so the listener belongs on a loopback address; package felix refuses another one unless
// it is told. A browser is the way in that remains: a page of any site can send requests to this machine. Requests that
// a browser marks as coming from another site are refused where they change something, and on a loopback
// listener the Host must be an address or localhost, so that a name that an attacker points at 127.0.0.1 opens nothing.
//
// # Decisions
//
//   - Unknown fields in a body are refused. A misspelt "durable" that is ignored would lose records.
//   - A POST without durable makes a stream in memory, as the field says; the felix command asks for durable true. fsync_mode is
//     shown and taken for durable streams only. Their on_slow is catch_up where the body names none.
//   - Fields that the broker records and does not act on (kind, consistency, delivery, replication_factor, region) are
//     given back as they came.
//
// Start reading at Listen, then rest.go.
package admin
