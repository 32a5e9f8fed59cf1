module github.com/swarmiji/swarmiji

go 1.26
