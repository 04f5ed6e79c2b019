package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// givenUp are words that the project does not use, with the term to write instead. They are
// looked for in comments, strings and pages, and as parts of identifiers; a phrase has a space,
// and lookAnew is the phrase "look anew". CONTRIBUTING.md explains the terms.
var givenUp = map[string]string{
	"deed": "job batch", "deeds": "job batches",
	"parcel": "transfer", "parcels": "transfers",
	"waybill": "transfer batch", "waybills": "transfer batches",
	"cargo": "entries of a transfer", "goods": "entries of a transfer",
	"look anew": "recheck", "looked anew": "rechecked", "looks anew": "rechecks", "looked at anew": "rechecked",
	"debt": "carried deficit", "debts": "carried deficit", "owed": "carried deficit",
	"letter": "message, or dead letter for one in a dead-letter queue", "letters": "messages, or dead letters for some in a dead-letter queue",
	"lent": "leased", "stir": "request", "stirs": "requests",
	"undecided": "whose failure is being judged", "dying": "moving to the dead-letter queue",
	"tally": "counters", "tallies": "counters",
	"book": "model", "books": "models",
	"rooms": "packages", "house": "process or package", "furniture": "runtime", "loud": "noisy",
}

// givenUpPhrases are looked for in comments, strings and pages only.
var givenUpPhrases = map[string]string{
	"that of": "the noun again", "those of": "the noun again", "so many": "the number, or the noun again",
	"is told": "who tells whom what", "are told": "who tells whom what", "was told": "who tells whom what",
	"is asked": "who asks whom what", "are asked": "who asks whom what", "was asked": "who asks whom what",
	"is had": "an active verb", "whoever": "the one who acts", "somebody": "the one who acts",
	"wait for its time": "be delayed", "waits for its time": "is delayed", "wait for their time": "be delayed",
	"those that there are": "the noun again", "that are so": "that match", "what is meant": "what matches", "so long ago": "the time",
	"trying on": "retrying", "all else goes": "everything else continues", "bursts of": "burst",
}

// allowed are uses of a given-up word that are right: by the file or directory, or everywhere.
var allowed = []struct{ word, path, why string }{
	{"*", "CHANGELOG.md", "says what was written then"},
	{"*", "words_test.go", "is this table"},
	{"*", "CONTRIBUTING.md", "names given-up words in its glossary"},
	{"debt", "throttle", "is a token bucket below zero"},
	{"debt", "sidecar/limit", "is a token bucket below zero"},
	{"debt", "sidecar/control", "is a token bucket below zero"},
	{"debt", "docs", "is a token bucket below zero"},
	{"debt", "sidecar/fleet/record", "is a token bucket below zero"},
	{"debts", "sidecar/fleet/record", "are token buckets below zero"},
	{"debt", "wire", "is a token bucket below zero"},
	{"letter", "fingerprint", "is a letter of the alphabet"},
	{"letters", "fingerprint", "are letters of the alphabet"},
	{"letters", "docs/configuration.md", "are letters of the alphabet"},
	{"letters", "sidecar/cluster", "are letters of the alphabet"},
	{"letters", "sidecar/config", "are letters of the alphabet in error texts"},
	{"letters", "store/replog", "are letters of the alphabet"},
	{"parcel", "sidecar/job/receive.go", "is the name of the verb between nodes, which stays"},
	{"parcel", "sidecar/job/transfer.go", "is part of the MAC between nodes, which stays"},
	{"tally", "store", "is a stored key and its name in error texts"},
	{"loud", "sidecar/config", "is a wrong log level in tests"},
	{"cargo", "examples", "is the package manager of Rust"},
	{"cargo", "docs", "is the package manager of Rust"},
	{"cargo", "README.md", "is the package manager of Rust"},
}

// beforeLetter are words after which a letter is a dead letter, or one of the alphabet.
var beforeLetter = []string{"dead", "first", "small", "capital", "case", "by", "of", "is", "ascii", "lower", "upper", "latin", "drive"}

// checked are the kinds of files that have texts for users or for readers of the code.
var checked = []string{".go", ".md", ".html", ".js", ".toml", ".yml", ".yaml"}

// TestGivenUpWords finds given-up words in Go files, docs, templates of pages, the sample
// configuration, alerts and dashboards.
func TestGivenUpWords(t *testing.T) {
	var found []string
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		name, ext := d.Name(), filepath.Ext(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" ||
			strings.HasPrefix(path, "sdk/") && (name == "build" || name == "dist")):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(checked, ext) || strings.HasSuffix(path, ".min.js"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		found = append(found, wordsOf(filepath.ToSlash(path), src)...)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, files, 300, "the files are not found")
	require.Empty(t, found, strings.Join(found, "\n"))
}

// wordsOf returns what is wrong with the words of a file, a line each.
func wordsOf(path string, src []byte) (wrong []string) {
	report := func(line int, word, use string) {
		for _, a := range allowed {
			if (a.word == word || a.word == "*") && (a.path == "" || path == a.path || strings.HasPrefix(path, a.path+"/")) {
				return
			}
		}
		wrong = append(wrong, fmt.Sprintf("%s:%d: %q: write %s", path, line, word, use))
	}
	switch filepath.Ext(path) {
	case ".md":
		checkText(1, string(src), report)
		return wrong
	case ".go":
	default:
		n := 0
		for line := range strings.Lines(string(src)) {
			n++
			checkWords(n, line, true, report)
		}
		return wrong
	}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile(path, -1, len(src))
	s.Init(file, src, nil, scanner.ScanComments)
	var group strings.Builder // of comments on lines that follow each other
	first, last := 0, 0
	endGroup := func() {
		if group.Len() > 0 {
			checkText(first, group.String(), report)
		}
		group.Reset()
	}
	for {
		pos, tok, lit := s.Scan()
		line := file.Line(pos)
		switch tok {
		case token.EOF:
			endGroup()
			return wrong
		case token.COMMENT:
			if line != last+1 {
				endGroup()
			}
			if group.Len() == 0 {
				first = line
			}
			group.WriteString(strings.TrimPrefix(strings.TrimPrefix(lit, "//"), " ") + "\n")
			last = line + strings.Count(lit, "\n")
		case token.STRING:
			checkWords(line, lit, true, report)
		case token.IDENT:
			if lit == "who" {
				report(line, lit, "principal, owner or another noun")
			}
			checkWords(line, lit, false, report)
		}
	}
}

var (
	// A sentence that begins with Who or What, up to its end.
	whoSentence = regexp.MustCompile(`(?:\A|\n\s*\n|[.!?:]["”)*]*\s+|\n\s*(?:[-*]|\d+\.) +)\**((?:Who|What) [^.?!|]*)([.?!|]|\z)`)
	// Code and addresses in a page are no prose.
	codeInPage = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|\\]\\([^)]*\\)")
	notNewline = regexp.MustCompile(`[^\n]`)
)

// checkText checks prose: a page, or a group of comments.
func checkText(first int, text string, report func(line int, word, use string)) {
	text = codeInPage.ReplaceAllStringFunc(text, func(code string) string { return notNewline.ReplaceAllString(code, "-") })
	n := first
	for line := range strings.Lines(text) {
		checkWords(n, line, true, report)
		n++
	}
	for _, at := range whoSentence.FindAllStringSubmatchIndex(text, -1) {
		if text[at[4]:at[5]] != "?" {
			report(first+strings.Count(text[:at[2]], "\n"), strings.Fields(text[at[2]:at[3]])[0], "a sentence that begins with its subject")
		}
	}
}

// checkWords checks the words of one line, and in prose the phrases as well.
func checkWords(line int, text string, prose bool, report func(line int, word, use string)) {
	words := splitWords(text)
	for i, word := range words {
		if strings.HasPrefix(word, "letter") && i > 0 && slices.Contains(beforeLetter, words[i-1]) {
			continue
		}
		for n := 1; n <= 4 && i+n <= len(words); n++ {
			phrase := strings.Join(words[i:i+n], " ")
			if use, ok := givenUp[phrase]; ok {
				report(line, phrase, use)
			} else if use, ok := givenUpPhrases[phrase]; ok && prose {
				report(line, phrase, use)
			}
		}
	}
}

// splitWords returns the words of a text in small letters; a word ends where a capital letter
// follows a small one.
func splitWords(text string) (words []string) {
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = word[:0]
		}
	}
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && len(word) > 0 && unicode.IsLower(word[len(word)-1]):
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}

func TestGivenUpWordsAreFound(t *testing.T) {
	for src, want := range map[string]string{
		"package x\n\nvar theDeed int":                         `x.go:3: "deed"`,
		"package x\n\nfunc lookAnew() {}":                      `x.go:3: "look anew"`,
		"package x\n\nconst s = `a parcel`":                    `x.go:3: "parcel"`,
		"package x\n\n// Its size is that of a page.":          `x.go:3: "that of"`,
		"package x\n\n// All is well.\n// Who waits, gets in.": `x.go:4: "Who"`,
		"package x\n\nvar who int":                             `x.go:3: "who"`,
		"package x\n\nvar letters int":                         `x.go:3: "letters"`,
	} {
		require.Len(t, wordsOf("x.go", []byte(src)), 1, src)
		require.Contains(t, wordsOf("x.go", []byte(src))[0], want)
	}
	for _, src := range []string{
		"package x\n\nvar deadLetters, DeadLetter, indeed int",
		"package x\n\n// Who waits? The one\n// who came first.",
	} {
		require.Empty(t, wordsOf("x.go", []byte(src)), src)
	}
	require.Equal(t, []string{`x.md:3: "Who": write a sentence that begins with its subject`}, wordsOf("x.md", []byte("# A\n\nWho reads `that of`\nis right.\n")))
	require.Empty(t, wordsOf("examples/x.md", []byte("Run cargo.")))
	require.Equal(t, []string{`x.html:2: "waits for its time": write is delayed`}, wordsOf("x.html", []byte("<p>\nIt waits for its time.</p>")))
	require.Empty(t, wordsOf("x.html", []byte("<h2>Dead letters</h2>")))
}
