// Package browser holds the tests of the web pages in a real browser: chromium, driven over
// its debugging protocol, opens pages of a fila in this process that has work to do. There
// is no other code.
//
// A test opens a [tab] and goes on with it. Whatever the browser complains about on the way
// fails the test: an error on the console, a violation of the content security policy, a
// request that failed or was refused, an exception of a script. What it shows must be what
// everybody can use: [tab.sound] has axe-core look at it, in light and dark, and at a width
// of 400 px. What the browser has asked fila for is taken down: a page, a part of one that
// changes, or a form that no test has got an answer to fails the whole. Nothing here
// sleeps or asks for speed: a test waits until a page shows what it is to show.
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
