package storefile

import (
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// Committer commits the transactions of a served file, with one sync each.
//
// A commit of bbolt needs two syncs: one of its pages, then one of the meta page that makes
// them the newest tree. A Committer writes all of it, and then a seal into the meta page: the
// places of the pages that the commit wrote, and their checksum. One sync makes everything
// durable. If the machine fails before its end, any part may be missing. Then the seal does
// not match, and opening the file drops the commit (see dropTorn).
//
// Invariants:
//
//   - When a commit begins, the commit before it is on disk and has a seal.
//   - A commit does not write to the pages of the commit before it: bbolt reuses the pages
//     that a commit has freed only after the next one.
//   - A file that was closed in order has no seals, so that a program that does not know
//     them can write to it.
//
// A commit with too many runs for a seal is synced before it gets a seal without runs.
//
// The pages that a commit wrote are the pages of its tree that are not in the tree before
// it. The Committer knows which pages are in the tree, and reads only what changed.
type Committer struct {
	path   Path
	db     *bbolt.DB
	f      *os.File // db's
	noSync bool

	root   uint64
	tree   pageSet // pages of the tree
	shared pageSet // tops of subtrees that the running commit shares with the one before; empty between commits
	tops   []uint64
	wrote  []run
	stack  []uint64
	page   []byte // buffers to reuse
	meta   []byte
	seal   []byte
	buf    []byte
}

// NewCommitter returns the Committer of a file that OpenDB has opened for Serving, with the
// pages that OpenDB returned. It makes the newest commit durable.
func NewCommitter(db *bbolt.DB, pages *PageChecker, o Options) (*Committer, error) {
	c := &Committer{
		path: pages.path, db: db, f: pages.f, noSync: o.NoSync, tree: pages.tree,
		page: make([]byte, PageSize), meta: make([]byte, PageSize), buf: make([]byte, sumBuffer),
	}
	newest, other, err := readMetas(c.f)
	if err != nil {
		return nil, err
	}
	c.root = newest.root
	if c.noSync {
		if !newest.sealed() && !other.sealed() {
			return c, nil
		}
		return c, c.unseal() // commits without a seal follow
	}
	if err := db.Sync(); err != nil {
		return nil, err
	}
	if newest.id != newest.txid%2 {
		// In a backup by bbolt the next commit would overwrite this page, and the other one has
		// the same tree and no seal. A commit without changes puts both in order.
		if err := db.Update(func(*bbolt.Tx) error { return nil }); err != nil {
			return nil, err
		}
		if newest, _, err = readMetas(c.f); err != nil {
			return nil, err
		}
	}
	if whole, err := newest.whole(c.f); whole || err != nil {
		return c, err
	}
	return c, c.write(&newest, nil)
}

// Commit commits a transaction and returns when it is durable. After an error the file must
// not be used any more. A nil Committer leaves the syncs to bbolt.
func (c *Committer) Commit(tx *bbolt.Tx) error {
	txid := uint64(tx.ID())
	if err := tx.Commit(); err != nil || c == nil || c.noSync {
		return err
	}
	m, err := readMeta(c.f, txid%2, c.meta)
	if err != nil {
		return err
	}
	if !m.valid || m.txid != txid {
		return fmt.Errorf("%s has another meta page than was written", c.path)
	}
	runs, err := c.update(m.root)
	if err != nil {
		return err
	}
	if len(runs) > maxRuns {
		if err := c.db.Sync(); err != nil {
			return err
		}
		runs = nil
	}
	return c.write(&m, runs)
}

// Close removes the seals, before the database is closed. It must not be called after an
// error of Commit.
func (c *Committer) Close() error {
	if c.noSync {
		return nil
	}
	return c.unseal()
}

// unseal removes the seals. The newest one is the last, because without it and with the other
// one the newest commit would be dropped.
func (c *Committer) unseal() error {
	newest, other, err := readMetas(c.f)
	if err != nil {
		return err
	}
	for _, m := range []*metaPage{&other, &newest} {
		if err := c.db.Sync(); err != nil {
			return err
		}
		if err := wipeSeal(c.f, m); err != nil {
			return err
		}
	}
	return c.db.Sync()
}

// write writes the seal of a meta page and syncs it with everything before.
func (c *Committer) write(m *metaPage, runs []run) (err error) {
	if c.seal, err = m.makeSeal(c.seal, c.f, runs, c.buf); err != nil {
		return fmt.Errorf("reading what was written to %s: %w", c.path, err)
	}
	if _, err := c.f.WriteAt(c.seal, int64(m.id)*PageSize+sealAt); err != nil {
		return err
	}
	return c.db.Sync()
}

// update updates the tree after a commit, and returns what the commit wrote.
func (c *Committer) update(root uint64) ([]run, error) {
	c.wrote, c.tops = c.wrote[:0], c.tops[:0]
	err := c.walk(root, func(id uint64) bool {
		if !c.tree.has(id) {
			return true
		}
		c.shared.add(id)
		c.tops = append(c.tops, id)
		return false
	}, func(r run) { c.wrote = append(c.wrote, r) })
	if err != nil {
		return nil, err
	}
	// The other pages of the tree before are free. A subtree that both trees have is below
	// a page that the commit wrote, or below such a subtree. So the walk meets its top.
	err = c.walk(c.root, func(id uint64) bool { return !c.shared.has(id) }, func(r run) {
		for id := r.first; id < r.first+r.pages; id++ {
			c.tree.remove(id)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, id := range c.tops {
		c.shared.remove(id)
	}
	for _, r := range c.wrote {
		for id := r.first; id < r.first+r.pages; id++ {
			c.tree.add(id)
		}
	}
	c.root = root
	return mergeRuns(c.wrote), nil
}

// walk visits a page and the pages below it if enter returns true for them.
func (c *Committer) walk(root uint64, enter func(id uint64) bool, visit func(run)) error {
	for c.stack = append(c.stack[:0], root); len(c.stack) > 0; {
		id := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		if !enter(id) {
			continue
		}
		pages, err := c.children(id)
		if err != nil {
			return err
		}
		visit(run{id, pages})
	}
	return nil
}

// children pushes the pages below a page, and returns the number of pages that it has.
func (c *Committer) children(id uint64) (pages uint64, err error) {
	b, err := c.read(id, PageSize)
	if err != nil {
		return 0, err
	}
	kind, count := ne.Uint16(b[8:]), int64(ne.Uint16(b[10:]))
	pages = uint64(ne.Uint32(b[12:])) + 1
	if ne.Uint64(b) != id || kind != pageLeaf && kind != pageBranch {
		return 0, fmt.Errorf("page %d of %s is another one than was written", id, c.path)
	}
	if end := pageHeader + count*pageElement; end > PageSize {
		if b, err = c.read(id, end); err != nil {
			return 0, err
		}
	}
	for i := range count {
		at := pageHeader + i*pageElement
		e := b[at : at+pageElement]
		if kind == pageBranch {
			c.stack = append(c.stack, ne.Uint64(e[8:]))
			continue
		}
		if ne.Uint32(e) != 1 { // no bucket
			continue
		}
		v := at + int64(ne.Uint32(e[4:])) + int64(ne.Uint32(e[8:]))
		root := b[min(v, int64(len(b))):]
		if len(root) < 8 {
			root = make([]byte, 8)
			if _, err := c.f.ReadAt(root, int64(id)*PageSize+v); err != nil {
				return 0, err
			}
		}
		if child := ne.Uint64(root); child != 0 { // not inline
			c.stack = append(c.stack, child)
		}
	}
	return pages, nil
}

// read reads the first n bytes of a page with its overflow. They are valid until the next call.
func (c *Committer) read(id uint64, n int64) ([]byte, error) {
	if int64(len(c.page)) < n {
		c.page = make([]byte, n)
	}
	_, err := c.f.ReadAt(c.page[:n], int64(id)*PageSize)
	return c.page[:n], err
}
