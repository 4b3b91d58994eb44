// Writing files: whole under their name or not at all, and never in the place of something else.
#include "platform/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "support/paths.h"

namespace cellm::platform {
namespace {

Status WriteWhole(const std::string& path, std::string_view text) {
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> writer, SystemFiles().Create(path));
  EXPECT_NE(writer->draft_path(), path);
  CELLM_RETURN_IF_ERROR(
      writer->Write({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  CELLM_ASSIGN_OR_RETURN(const std::string draft, SystemFiles().Read(writer->draft_path(), 1000));
  EXPECT_EQ(draft, text) << "what was written can be read before it has its name";
  return writer->Commit();
}

TEST(FileWriter, ReplacesAFileWhole) {
  const std::string path = ::cellm::testing::TempFolder() + "/file";
  ASSERT_TRUE(WriteWhole(path, "first").ok());
  ASSERT_TRUE(WriteWhole(path, "second").ok());
  EXPECT_EQ(*SystemFiles().Read(path, 100), "second");
  {
    const auto abandoned = SystemFiles().Create(path);
    ASSERT_TRUE(abandoned.ok());
    EXPECT_TRUE(SystemFiles().IsFile((*abandoned)->draft_path()));
  }
  EXPECT_EQ(*SystemFiles().Read(path, 100), "second");
  EXPECT_EQ(SystemFiles().List(ParentPath(path))->size(), 1u) << "no draft stays";
}

// What stands in for a device node here: a pipe, and a link to it.
TEST(FileWriter, NeverReplacesWhatIsNoFile) {
  const std::string folder = ::cellm::testing::TempFolder();
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(::symlink("pipe", (folder + "/link").c_str()), 0);
  ASSERT_EQ(::mkdir((folder + "/folder").c_str(), 0700), 0);
  for (const char* name : {"pipe", "link", "folder"}) {
    const auto writer = SystemFiles().Create(folder + "/" + name);
    ASSERT_FALSE(writer.ok()) << name;
    EXPECT_EQ(writer.status().code(), StatusCode::kIo);
    EXPECT_NE(writer.status().message().find(name), std::string::npos);
  }
  struct stat info = {};
  ASSERT_EQ(::lstat(pipe.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  ASSERT_EQ(::lstat((folder + "/link").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  EXPECT_EQ(SystemFiles().List(folder)->size(), 3u);
}

}  // namespace
}  // namespace cellm::platform
