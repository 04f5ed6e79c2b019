package source

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// Load limits. The parser keeps 256 bytes per open bracket and pending operator
// and recurses to a fatal stack overflow. The compiler recurses over the tree,
// is quadratic in several places, and silently wraps register numbers above 255.
const (
	maxNesting   = 100       // open brackets and blocks
	maxChain     = 100       // operators in a row that nest to the right
	maxFunctions = 200       // each costs 20 KiB while compiling
	maxJumps     = 100       // labels and gotos: their resolution is quadratic
	maxTreeDepth = 180       // after rewriting
	maxRegisters = 190       // of one function
	maxUpvalues  = 60        // of one function
	maxItems     = 20_000    // of a constructor; from 25,550 gopher-lua miscompiles
	maxConstant  = 8_000_000 // comparisons in the constant tables
	maxLookups   = 4_000_000 // comparisons in the tables of local names
)

// prescan reads the tokens with gopher-lua's scanner, which does not recurse, and
// refuses a script that would make the parser overflow. open is the last token
// that the script opens and does not close, or nil.
func prescan(name, src string) (open *Error, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Error{Message: fmt.Sprintf("cannot read the script: %v", r)}
		}
	}()
	p := prescanner{sc: parse.NewScanner(strings.NewReader(src), name), lx: &parse.Lexer{}}
	for {
		more, err := p.next()
		if err != nil {
			return nil, err
		}
		if !more {
			return p.unclosed(), nil
		}
	}
}

type prescanner struct {
	sc                      *parse.Scanner
	lx                      *parse.Lexer
	chains                  []int // the chain that each open bracket interrupts
	chain, unary            int
	open                    []ast.Token // not closed yet
	depth, functions, jumps int
	line, column            int
}

// unclosed is the error for the innermost token that the script does not close, or
// nil. It ignores which token closes which, since the parser checks that first.
func (p *prescanner) unclosed() *Error {
	if len(p.open) == 0 {
		return nil
	}
	t := p.open[len(p.open)-1]
	return &Error{t.Pos.Line, t.Pos.Column, fmt.Sprintf("the '%s' here is not closed", t.Str)}
}

// nest tracks the tokens that are opened and closed.
func (p *prescanner) nest(t ast.Token) {
	switch t.Type {
	case '(', '{', '[', parse.TFunction, parse.TDo, parse.TIf, parse.TRepeat:
		p.depth++
		p.open = append(p.open, t)
	case ')', '}', ']', parse.TEnd, parse.TUntil:
		p.depth = max(p.depth-1, 0)
		if n := len(p.open); n > 0 {
			p.open = p.open[:n-1]
		}
	}
}

func (p *prescanner) refuse(format string, args ...any) error {
	return &Error{p.line, p.column, fmt.Sprintf(format, args...)}
}

func (p *prescanner) next() (more bool, err error) {
	p.lx.PrevTokenType = p.lx.Token.Type
	tok, err := p.sc.Scan(p.lx)
	if err != nil {
		return false, asError(err, nil)
	}
	p.lx.Token = tok
	if tok.Type < 0 {
		return false, nil
	}
	p.line, p.column = tok.Pos.Line, tok.Pos.Column
	unary := false
	p.nest(tok)
	switch tok.Type {
	case '(', '{', '[':
		p.chains = append(p.chains, p.chain)
		p.chain = 0
	case ')', '}', ']':
		if n := len(p.chains); n > 0 {
			p.chain, p.chains = p.chains[n-1], p.chains[:n-1]
		}
	case parse.TFunction:
		if p.functions++; p.functions > maxFunctions {
			return false, p.refuse("too many functions (at most %d in a script)", maxFunctions)
		}
	case parse.TEnd, parse.TUntil:
		p.chain = 0
	case parse.T2Colon, parse.TGoto:
		if p.jumps++; p.jumps > 3*maxJumps {
			return false, p.refuse("too many labels and gotos (at most %d in a script)", maxJumps)
		}
	case '-', '#', parse.TNot:
		unary = true
		if p.unary++; p.unary > maxChain {
			return false, p.refuse("expression too complex (at most %d operators in a row)", maxChain)
		}
	case parse.T2Comma, '^':
		if p.chain++; p.chain > maxChain {
			return false, p.refuse("expression too complex (at most %d operators in a row)", maxChain)
		}
	case ',', ';', '=', parse.TLocal, parse.TReturn:
		p.chain = 0
	}
	if !unary {
		p.unary = 0
	}
	if p.depth > maxNesting {
		return false, p.refuse("nesting too deep (at most %d levels)", maxNesting)
	}
	return true, nil
}

// asError converts an error of the scanner or parser. open is the error for
// what the script does not close, or nil.
func asError(err error, open *Error) error {
	var pe *parse.Error
	if !errors.As(err, &pe) {
		return err
	}
	switch {
	case pe.Pos.Line == parse.EOF && open != nil:
		return open
	case pe.Pos.Line == parse.EOF:
		return &Error{Message: pe.Message + " at the end of the script"}
	case !utf8.ValidString(pe.Token):
		return &Error{pe.Pos.Line, max(pe.Pos.Column, 0), "a character that is not ASCII can only be in a string or a comment"}
	case pe.Token != "" && len(pe.Token) <= 40:
		return &Error{pe.Pos.Line, max(pe.Pos.Column, 0), fmt.Sprintf("%s near '%s'", pe.Message, pe.Token)}
	}
	return &Error{max(pe.Pos.Line, 0), max(pe.Pos.Column, 0), pe.Message}
}
