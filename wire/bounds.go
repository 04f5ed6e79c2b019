package wire

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Bound is what a field of a request or a setting may be: a number in a range, or one of some
// texts. It comes with the value of the field, so that checks and schemas use the same bounds.
type Bound struct {
	Field string
	Zero  string // what 0 or an empty text means, if it is allowed besides the others

	// Of a list or an object: the number of its entries. The Value of a fraction is Min: its own check
	// compares it.
	Value, Min, Max int64

	Text  string
	OneOf []string // the texts that are allowed, or the entries of a list, which its own check compares; nil: the field is a number
}

// Bounded is a request or settings with bounds.
type Bounded interface{ Bounds() []Bound }

// OutOfBounds returns the first field of b that is out of its bounds, or nil.
func OutOfBounds(b Bounded) *SettingError {
	for _, c := range b.Bounds() {
		switch {
		case c.OneOf != nil:
			if !slices.Contains(c.OneOf, c.Text) && !(c.Text == "" && c.Zero != "") {
				return &SettingError{c.Field, Quote(c.Text), c.allowedTexts()}
			}
		case (c.Value < c.Min || c.Value > c.Max) && !(c.Value == 0 && c.Zero != ""):
			return &SettingError{c.Field, strconv.FormatInt(c.Value, 10), c.allowedNumbers()}
		}
	}
	return nil
}

// CheckBounds refuses a request with a field out of its bounds.
func CheckBounds(b Bounded) *Error {
	if out := OutOfBounds(b); out != nil {
		if out.Value == `""` {
			out.Value = "" // it is missing
		}
		return BadField(out.Field, out.Value, out.Allowed)
	}
	return nil
}

func (b *Bound) allowedNumbers() string {
	zero := ""
	if b.Zero != "" {
		zero = "0 (" + b.Zero + ") and "
	}
	if b.Max == math.MaxInt64 {
		return fmt.Sprintf("allowed are %s%d and more", zero, b.Min)
	}
	return fmt.Sprintf("allowed are %s%d to %d", zero, b.Min, b.Max)
}

func (b *Bound) allowedTexts() string {
	texts := b.OneOf
	if b.Zero != "" && !slices.Contains(texts, b.Zero) {
		texts = append([]string{`"" (` + b.Zero + ")"}, texts...)
	}
	last := len(texts) - 1
	if last == 0 {
		return "allowed is " + texts[0]
	}
	return "allowed are " + strings.Join(texts[:last], ", ") + " and " + texts[last]
}
