package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/filaq/fila/sidecar/cluster/meta"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/replog"
	"github.com/filaq/fila/wire"
)

// Copy is the copy from which a shard is rebuilt.
type Copy struct {
	Shard    int    `json:"shard"`
	From     string `json:"from"` // file
	Epoch    uint64 `json:"epoch"`
	Seq      uint64 `json:"seq"` // last record of the log that it contains
	Queues   int64  `json:"queues"`
	Messages int64  `json:"messages"`

	at replog.Copy
}

// Plan is what a rebuild would do.
type Plan struct {
	Copies []Copy `json:"copies"` // one per shard, in order
	// Lost means that the shared data of the cluster is gone: the runtime configuration, pauses,
	// overrides and the audit log; and acks of current deliveries will be refused.
	Lost bool `json:"lost"`
	// Passed lists copies that cannot be used, and why.
	Passed []string `json:"passed"`

	o      Options
	m      *meta.Meta // nil: lost
	dirs   []string   // data directories of shards, to be moved aside
	before string     // incarnation of the copies
	begun  bool       // a rebuild was interrupted: logs may survive as copies only
}

// Close drops a plan, or releases it after Rebuild.
func (p *Plan) Close() {
	if p.m != nil {
		p.m.Close()
	}
	if !p.begun {
		_ = os.RemoveAll(p.o.Dir) // the next command removes it as well
	}
}

// Survey finds the most advanced copy of each shard, in the data directories of nodes that do not
// run and in the remaining logs. It does not change them.
func Survey(ctx context.Context, o Options, dirs []string) (*Plan, error) {
	p := &Plan{o: o, Passed: []string{}}
	if err := p.survey(ctx, dirs); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Plan) survey(ctx context.Context, dirs []string) (err error) {
	o := &p.o
	if err := o.nobody(ctx); err != nil {
		return err
	}
	switch p.m, err = meta.Look(ctx, o.meta()); {
	case errors.Is(err, meta.ErrNone):
		p.Lost = true
	case err != nil:
		return err
	case p.m.Making() != "" && p.m.Making() != byRebuild:
		return fmt.Errorf("cluster %s: `%s` was interrupted; call that again", o.Cluster, p.m.Making())
	case p.m.Making() != "" && p.m.Before() == "": // a rebuild without shared data was interrupted
		p.Lost = true
	case p.m.Making() != "":
		p.before = p.m.Before()
	default:
		p.before = p.m.Incarnation()
	}
	p.begun = p.m != nil && p.m.Making() != ""
	if err := o.makeDir(); err != nil {
		return err
	}
	if err := p.readLogs(ctx); err != nil {
		return err
	}
	best := make(map[int]Copy)
	for _, dir := range append(dirs, o.Dir) {
		if err := p.lookInto(dir, best); err != nil {
			return err
		}
	}
	for shard := range o.Shards {
		c, ok := best[shard]
		if !ok {
			return fmt.Errorf("there is no copy of shard %d in the directories%s: name the data directories of more nodes", shard, p.reasons())
		}
		p.Copies = append(p.Copies, c)
	}
	return nil
}

func (p *Plan) reasons() string {
	text := ""
	for _, why := range p.Passed {
		text += "; " + why
	}
	return text
}

// readLogs copies the logs that exist.
func (p *Plan) readLogs(ctx context.Context) error {
	if p.before == "" {
		return nil
	}
	js, snapshots, err := p.o.snapshots(ctx, p.before)
	if errors.Is(err, replog.ErrForeign) {
		return nil // an interrupted rebuild has copied them
	}
	if err != nil {
		return err
	}
	for shard := range p.o.Shards {
		_, err := p.o.read(ctx, js, snapshots, p.before, shard)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.Passed = append(p.Passed, fmt.Sprintf("log of shard %d: %v", shard, err))
		}
	}
	return nil
}

// lookInto updates best with the copies in a directory.
func (p *Plan) lookInto(dir string, best map[int]Copy) error {
	shards := filepath.Join(dir, "shards")
	if _, err := os.Stat(shards); err == nil {
		dir = shards
	} else if dir != p.o.Dir && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		shard, err := strconv.Atoi(trimDB(e.Name()))
		if err != nil || shard < 0 || shard >= p.o.Shards {
			continue
		}
		found = true
		if err := p.lookAt(filepath.Join(dir, e.Name()), shard, best); err != nil {
			return err
		}
	}
	switch {
	case dir == p.o.Dir:
	case !found:
		return fmt.Errorf("%s has no copies of shards: name the data directory of a node", dir)
	case !slices.Contains(p.dirs, dir):
		p.dirs = append(p.dirs, dir)
	}
	return nil
}

func trimDB(name string) string {
	if filepath.Ext(name) != ".db" {
		return ""
	}
	return name[:len(name)-len(".db")]
}

func (p *Plan) lookAt(path string, shard int, best map[int]Copy) error {
	c := Copy{Shard: shard, From: path}
	pass := func(why any) error {
		p.Passed = append(p.Passed, fmt.Sprintf("%s: %v", path, why))
		return nil
	}
	sum, err := store.CheckFile(path, p.o.store(), func(*store.CorruptError) {})
	switch {
	case errors.Is(err, store.ErrLocked):
		return fmt.Errorf("%w: a fila has %s open", ErrRuns, path)
	case err != nil:
		return pass(err)
	case sum.Problems > 0:
		return pass(fmt.Sprintf("%d things in it are broken", sum.Problems))
	}
	f, err := store.OpenFile(path, p.o.store())
	if err != nil {
		return pass(err)
	}
	at, ok, err := replog.CopyOf(f)
	if err = errors.Join(err, f.Close()); err != nil || !ok {
		return pass(errors.Join(err, errors.New("it is no copy of a shard")))
	}
	if p.before == "" { // all copies have to be of one incarnation
		p.before = at.Incarnation
	}
	switch {
	case at.Shard != shard:
		return pass(fmt.Sprintf("it is of shard %d", at.Shard))
	case at.Incarnation != p.before && p.Lost:
		return fmt.Errorf("%s is of incarnation %s, and others are of %s: name directories of one", path, at.Incarnation, p.before)
	case at.Incarnation != p.before:
		return pass("it is of another incarnation, " + at.Incarnation)
	}
	c.Epoch, c.Seq, c.Queues, c.Messages, c.at = at.Epoch, at.Seq, int64(len(sum.Queues)), sum.Messages, at
	if have, ok := best[shard]; !ok || have.at.Compare(at.Mark) < 0 {
		best[shard] = c
	}
	return nil
}

// Rebuild makes the cluster again as another incarnation, from the copies. It moves the files of
// surveyed nodes aside; other nodes refuse to use theirs until an operator does the same.
func (p *Plan) Rebuild(ctx context.Context) (moved Moved, aside []string, err error) {
	o := &p.o
	files := make([]string, len(p.Copies))
	for i, c := range p.Copies {
		files[i] = c.From
		moved.Queues, moved.Messages = moved.Queues+c.Queues, moved.Messages+c.Messages
	}
	p.begun = true
	if p.Lost {
		err = p.begin(ctx)
	} else {
		err = p.m.Renew(ctx, byRebuild)
	}
	if err != nil {
		return moved, nil, err
	}
	if err := o.fill(ctx, p.m, files, p.before, p.m.Incarnation()); err != nil {
		return moved, nil, err
	}
	for _, dir := range p.dirs {
		to := dir + "." + p.before
		if err := os.Rename(dir, to); err != nil {
			return moved, aside, fmt.Errorf("the cluster is there; put %s aside before its node starts: %w", dir, err)
		}
		aside = append(aside, to)
	}
	return moved, aside, os.RemoveAll(o.Dir)
}

// begin makes the shared data of the cluster from the copies.
func (p *Plan) begin(ctx context.Context) error {
	b := meta.Beginning{By: byRebuild, Secret: meta.NewSecret()}
	var queues []store.QueueRecord
	shardOf := make(map[string]int) // the actual shards, which may differ from the hash
	for _, c := range p.Copies {
		f, err := store.OpenFile(c.From, p.o.store())
		if err != nil {
			return err
		}
		snap, err := f.Snapshot()
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		b.LastID = max(b.LastID, snap.NextQueueID-1)
		queues = append(queues, snap.Queues...)
		for _, q := range snap.Queues {
			shardOf[wire.Source(q.Name)] = c.Shard
		}
	}
	b.Queues = placesOf(queues, &b.LastID, func(name string) int { return shardOf[name] })
	if p.m != nil { // left by an interrupted rebuild
		p.m.Close()
	}
	m, err := meta.Begin(ctx, p.o.meta(), b)
	p.m = m
	return err
}
