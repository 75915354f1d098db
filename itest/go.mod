module github.com/postrider/postrider/itest

go 1.26.0
