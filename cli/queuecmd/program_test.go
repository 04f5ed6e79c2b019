package queuecmd

import "github.com/filaq/fila/cli/clitest"

var program = clitest.Program(Commands)
