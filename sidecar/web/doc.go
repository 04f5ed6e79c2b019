// Package web has the pages of fila for browsers.
//
// [Web] is an [http.Handler]. A page is a row of a table (pages.go): its path, its
// template, the function that gets its data, and the role that it needs. An action is a
// row of another table (actions.go): a form and its admin verb. Every page and action goes
// through [Options.Do], the verbs of package admin with the name of the principal. So a page
// can do nothing that the protocol cannot, and it works in a cluster too.
//
// Templates are in templates/: a file for each page, parts/ for what several pages share, and
// components/ for badges, tables, fields and the like, which assets/fila.css styles. A form that
// is refused shows its page again with the values that were sent (mistake.go).
//
// The server renders the HTML, and a page works without script. With script, the live part
// of a page is sent again once a second as a server-sent event: live.go renders it once for
// all viewers of the same part, and history.go keeps the points for charts.
//
// access.go authenticates each request first. Payloads, headers and keys of messages are
// untrusted text: html/template escapes it, looks.go shows characters that turn its direction
// as code points, and the content security policy allows only the scripts and styles of
// assets/.
package web
