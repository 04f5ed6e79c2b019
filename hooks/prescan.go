package hooks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// Load limits. The parser keeps 256 bytes per open bracket and pending operator
// and recurses to a fatal stack overflow; the compiler recurses over the tree,
// is quadratic in several places, and wraps register numbers above 255 without
// a word.
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

// prescan reads the tokens with gopher-lua's own scanner, which does not
// recurse, and refuses what would make the parser overflow.
func prescan(name, src string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &sourceError{msg: fmt.Sprintf("cannot read the script: %v", r)}
		}
	}()
	p := prescanner{sc: parse.NewScanner(strings.NewReader(src), name), lx: &parse.Lexer{}}
	for {
		more, err := p.next()
		if err != nil || !more {
			return err
		}
	}
}

type prescanner struct {
	sc                      *parse.Scanner
	lx                      *parse.Lexer
	chains                  []int // the chain that each open bracket interrupts
	chain, unary            int
	depth, functions, jumps int
	line, column            int
}

func (p *prescanner) refuse(format string, args ...any) error {
	return &sourceError{p.line, p.column, fmt.Sprintf(format, args...)}
}

func (p *prescanner) next() (more bool, err error) {
	p.lx.PrevTokenType = p.lx.Token.Type
	tok, err := p.sc.Scan(p.lx)
	if err != nil {
		return false, asSourceError(err)
	}
	p.lx.Token = tok
	if tok.Type < 0 {
		return false, nil
	}
	p.line, p.column = tok.Pos.Line, tok.Pos.Column
	unary := false
	switch tok.Type {
	case '(', '{', '[':
		p.depth++
		p.chains = append(p.chains, p.chain)
		p.chain = 0
	case ')', '}', ']':
		p.depth = max(p.depth-1, 0)
		if n := len(p.chains); n > 0 {
			p.chain, p.chains = p.chains[n-1], p.chains[:n-1]
		}
	case parse.TFunction:
		p.depth++
		if p.functions++; p.functions > maxFunctions {
			return false, p.refuse("too many functions (at most %d in a script)", maxFunctions)
		}
	case parse.TDo, parse.TIf, parse.TRepeat:
		p.depth++
	case parse.TEnd, parse.TUntil:
		p.depth = max(p.depth-1, 0)
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

// asSourceError takes the place out of an error of the scanner or parser.
func asSourceError(err error) error {
	var pe *parse.Error
	if !errors.As(err, &pe) {
		return err
	}
	msg, line := pe.Message, max(pe.Pos.Line, 0)
	if pe.Pos.Line == parse.EOF {
		return &sourceError{msg: msg + " at the end of the script: is there an 'end', a bracket or a quote missing?"}
	}
	if msg == "unterminated string" && pe.Pos.Column == 0 {
		line-- // the scanner is past the end of the line
	}
	if pe.Token != "" && len(pe.Token) <= 40 {
		msg = fmt.Sprintf("%s near '%s'", msg, pe.Token)
	}
	return &sourceError{line, max(pe.Pos.Column, 0), msg}
}
