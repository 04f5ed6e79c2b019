package command

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// BuildInfo is the output of `fila version --json`.
type BuildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// String is the line that `fila version` and `fila --version` print.
func (b BuildInfo) String() string {
	line := "fila " + b.Version
	if b.Revision != "" {
		line += " " + b.Revision
	}
	if b.Modified {
		line += " (modified)"
	}
	return fmt.Sprintf("%s %s %s\n", line, b.Go, b.Platform)
}

// ReadBuildInfo returns the build information in the binary.
func ReadBuildInfo() BuildInfo {
	info := BuildInfo{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	if v := build.Main.Version; v != "(devel)" {
		info.Version = cmp.Or(v, info.Version)
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			info.Revision = setting.Value
		case "vcs.time":
			info.Time = setting.Value
		case "vcs.modified":
			info.Modified = setting.Value == "true"
		}
	}
	return info
}
