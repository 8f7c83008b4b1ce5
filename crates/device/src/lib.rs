//! Completion queues over members: files, block devices, memory
