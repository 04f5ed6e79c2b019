// Package browser has the tests of the web pages in a real browser: chromium, driven over its
// debugging protocol, opens the pages of a fila with work in this process. It has no other
// code.
//
// A test opens a [tab]. Every complaint of the browser fails it: an error on the console, a
// violation of the content security policy, a failed or refused request, an exception of a
// script. [tab.sound] checks accessibility with axe-core, in light and dark, and at a width of
// 400 px. A page, a part of a page or a form that no test has requested successfully fails the
// package. No test sleeps or measures speed: tests wait until a page shows a text. They run in
// parallel, each with its own fila and cookies.
//
// Without chromium the tests are skipped, but in CI (CI=true), where .ci/run installs it,
// they fail. Environment:
//
//	CHROMIUM     the browser; otherwise chromium, chromium-browser or google-chrome
//	SCREENSHOTS  a directory that screenshots are written to; otherwise none are kept
//
// testdata/axe is axe-core 4.14.1 as it is published (Mozilla Public License 2.0); it is in
// no binary.
package browser
