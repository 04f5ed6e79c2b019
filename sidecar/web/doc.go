// Package web has the pages of fila: what people look at in a browser.
//
// [Web] is an [http.Handler]. A page is a row of a table (pages.go): its path, its
// template, the function that gets its data, and who may see it. An action is a row of
// another (actions.go): a form, and the admin verb that it becomes. Whatever a page shows
// or does goes through [Options.Do], which is the table of verbs of package admin with the
// name of who asks: a page can do nothing that the protocol cannot, in a cluster neither.
//
// The server makes the HTML; a page works without script. With script, the part of a page
// that changes comes again once a second over server-sent events: live.go makes it once for
// all who look at the same, and history.go keeps what is needed for lines over time.
//
// access.go decides who somebody is, before anything else is looked at. What producers have
// sent is text: html/template escapes it, looks.go shows characters that turn its direction
// as their code points, and the content security policy forbids scripts and styles but those
// of assets/.
package web
