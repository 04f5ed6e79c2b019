package queue

type side struct{}

func (Register) apply(*side)   {}
func (Leave) apply(*side)      {}
func (Fetch) apply(*side)      {}
func (PauseQueue) apply(*side) {}
func (PauseKey) apply(*side)   {}
func (Weigh) apply(*side)      {}
func (Settings) apply(*side)   {}
func (Dispatch) apply(*side)   {}
func (Pick) apply(*side)       {}
func (Redrive) apply(*side)    {}
